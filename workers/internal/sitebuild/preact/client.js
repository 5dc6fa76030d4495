/*! preact 10.29.8, MIT licence, Copyright (c) 2015-present Jason Miller */
import { render, hydrate, unmountComponentAtNode } from 'preact/compat';

export function createRoot(container) {
	return {
		// eslint-disable-next-line
		render: function (children) {
			render(children, container);
		},
		// eslint-disable-next-line
		unmount: function () {
			unmountComponentAtNode(container);
		}
	};
}

export function hydrateRoot(container, children) {
	hydrate(children, container);
	return createRoot(container);
}

export default {
	createRoot,
	hydrateRoot
};
