// Package functions is what callers reach: every operation, and every endpoint
// that serves them.
package functions

import (
	"standmeet/functions/access"
	"standmeet/functions/account"
	"standmeet/functions/bookings"
	"standmeet/functions/corpus"
	"standmeet/functions/events"
	"standmeet/functions/jobs"
	"standmeet/functions/microsites"
	"standmeet/functions/obsidian"
	"standmeet/functions/tasks"
	"standmeet/functions/webhooks"
	"standmeet/shared/op"
)

// Catalog is every operation.
func Catalog(d Deps) op.Catalog {
	c := d.corpus()
	t := tasks.Deps{DB: d.DB, Receipts: d.Receipts}
	e := events.Deps{DB: d.DB, Waiter: d.Waiter}
	a := d.account()
	x := d.access()
	b := bookings.Deps{DB: d.DB, Keys: d.Keys, PublicURL: d.PublicURL}
	v := obsidian.Deps{DB: d.DB, Blobs: d.Blobs}
	m := d.microsites()
	w := webhooks.Deps{DB: d.DB, Keys: d.Keys, Egress: d.Egress}
	j := jobs.Deps{DB: d.DB, Receipts: d.Receipts, Egress: d.Egress}
	return op.NewCatalog(
		access.Submit(x),
		access.List(x),
		access.Get(x),
		access.Approve(x),
		access.ResendMail(x),
		access.Close(x),
		access.CreateCode(x),
		access.ListCodes(x),
		access.RevokeCode(x),
		access.Redeem(x),

		bookings.GetAvailability(b),
		bookings.SetAvailability(b),
		bookings.Slots(b),
		bookings.Create(b),
		bookings.List(b),
		bookings.Get(b),
		bookings.Reschedule(b),
		bookings.Cancel(b),
		bookings.File(b),
		bookings.CreateFeed(b),
		bookings.RevokeFeed(b),
		bookings.Feed(b),

		corpus.Create(c),
		corpus.Update(c),
		corpus.Promote(c),
		corpus.Delete(c),
		corpus.Restore(c),
		corpus.Trash(c),
		corpus.Get(c),
		corpus.List(c),
		corpus.Search(c),
		corpus.PublicList(c),
		corpus.PublicGet(c),
		corpus.PublicSearch(c),

		microsites.Create(m),
		microsites.List(m),
		microsites.Get(m),
		microsites.GetFile(m),
		microsites.PutFiles(m),
		microsites.Delete(m),
		microsites.Build(m),
		microsites.GetBuild(m),
		microsites.AwaitSettled(m),
		microsites.Publish(m),
		microsites.Rollback(m),
		microsites.Unpublish(m),

		obsidian.Import(v),
		obsidian.UploadURL(v),
		obsidian.Export(v),
		obsidian.Asset(v),
		obsidian.PublicAsset(v),

		tasks.Overview(t),
		tasks.List(t),
		tasks.Get(t),
		tasks.Retry(t),
		tasks.RetryOne(t),
		tasks.Cancel(t),
		tasks.CancelOne(t),
		tasks.Periodic(t),
		tasks.RunPeriodic(t),

		events.List(e),
		events.Get(e),
		events.Requeue(e),

		webhooks.Create(w),
		webhooks.List(w),
		webhooks.EventTypes(w),
		webhooks.Get(w),
		webhooks.Update(w),
		webhooks.Delete(w),
		webhooks.RotateSecret(w),
		webhooks.SendTest(w),
		webhooks.Redeliver(w),
		webhooks.Deliveries(w),

		jobs.CreateSource(j),
		jobs.ListSources(j),
		jobs.DeleteSource(j),
		jobs.List(j),
		jobs.Show(j),
		jobs.FetchNew(j),
		jobs.FetchResult(j),

		account.Get(a),
		account.CreateToken(a),
		account.ListTokens(a),
		account.RevokeToken(a),
		account.SendTestMail(a),
		account.SignIn(a),
		account.SignOut(a),
		account.Sessions(a),
		account.SignOutEverywhere(a),
		account.SetPassword(a),
	)
}

func (d Deps) account() account.Deps {
	return account.Deps{DB: d.DB, Receipts: d.Receipts, Auth: d.Auth, Mail: d.Mail, HTTPS: d.HTTPS}
}

func (d Deps) microsites() microsites.Deps {
	return microsites.Deps{DB: d.DB, Waiter: d.Waiter, Receipts: d.Receipts, Blobs: d.Blobs, PublicURL: d.PublicURL}
}

func (d Deps) corpus() corpus.Deps { return corpus.Deps{DB: d.DB, Receipts: d.Receipts} }

func (d Deps) access() access.Deps {
	return access.Deps{DB: d.DB, Receipts: d.Receipts, Keys: d.Keys, PublicURL: d.PublicURL, Mail: d.Mail, HTTPS: d.HTTPS}
}
