package task

// Say is the copy table: the one sentence for a side effect in a state. It
// states what is so, nothing else; only a completed task is spoken of as done.
// A kind that is not declared gets sentences that fit every kind.
func Say(kind string, s State) string {
	if line := sentences()[kind][s]; line != "" {
		return line
	}
	return sentences()[""][s]
}

// say is Say for a task that may be in one of two plights that are no states.
func (t Task) say() string {
	switch {
	case t.SetAside:
		return "Set aside: the relay could not make work of it. Its event can be put back once the cause is removed."
	case t.CancelRequested:
		return "It was asked to stop and has not ended yet."
	}
	return Say(t.Kind, t.State)
}

// IndexedOrNot is said of a change whose task could not be read.
func IndexedOrNot() string {
	return "Saved. Whether search knows this change yet can't be told right now."
}

// IndexedInPart is said of a note whose indexing is completed while that of notes
// below it, which may have changed with it, is not.
func IndexedInPart() string {
	return "Saved. Search knows this note as it is now, but not yet all of the notes below it."
}

// IndexedTruncated is said of an indexed note that is too long for the index.
func IndexedTruncated() string {
	return "Saved and indexed, but the note is too long for search to know all of its words: those at its end may not find it."
}

func sentences() map[string]map[State]string {
	return map[string]map[State]string{
		"": {
			Pending:   "Waiting to start.",
			Running:   "Under way.",
			Retryable: "The last attempt failed; it will be tried again by itself.",
			Completed: "Done.",
			Discarded: "Failed for good. It can be retried from the tasks panel.",
			Cancelled: "Cancelled before it was done.",
		},
		// the change may be any: a new text, a move, a deletion
		CorpusIndex: {
			Pending:   "Saved. Search doesn't know this change yet: indexing is queued.",
			Running:   "Saved. Search doesn't know this change yet: it is being indexed.",
			Retryable: "Saved. Search doesn't know this change yet: indexing failed and will be tried again by itself.",
			Completed: "Saved and indexed: search knows this change.",
			Discarded: "Saved, but indexing failed for good: search may not know this change. Retry it from the tasks panel.",
			Cancelled: "Saved, but indexing was cancelled: search may not know this change.",
		},
		MailTest: {
			Pending:   "The test mail is queued.",
			Running:   "The test mail is being handed over.",
			Retryable: "The test mail could not be handed over yet; it will be tried again by itself.",
			Completed: "The test mail was sent.",
			Discarded: "The test mail could not be handed over. The error says why.",
			Cancelled: "The test mail was cancelled. If an attempt had begun, it may still arrive.",
		},
		TasksBulk: {
			Pending:   "Queued: none of the matching tasks has been touched yet.",
			Running:   "Working through the matching tasks.",
			Retryable: "Stopped part of the way; it will go on by itself.",
			Completed: "Done: every matching task was gone through.",
			Discarded: "Failed part of the way. Retry it to go on.",
			Cancelled: "Cancelled; what it had done until then stays done.",
		},
		PeriodicRun: {
			Pending:   "The run is queued.",
			Running:   "The job is running.",
			Retryable: "The run failed; it will be tried again by itself.",
			Completed: "The job ran.",
			Discarded: "The run failed for good.",
			Cancelled: "The run was cancelled.",
		},
	}
}
