package task

import "fmt"

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

// VaultImported is said of an import. pending is how many of the vault's notes search
// doesn't know as they are; a negative one says that it could not be read.
func VaultImported(pending int64) string {
	switch {
	case pending < 0:
		return "The import is committed. Whether search knows all of it yet can't be told right now."
	case pending == 0:
		return "The import is committed, and search knows all of the vault's notes as they are."
	}
	return fmt.Sprintf("The import is committed. Search doesn't know %d of the vault's notes as they are yet.", pending)
}

// CodeMailFailed is said of a mail with an access code that did not get out, when
// its task is no longer kept.
func CodeMailFailed() string {
	return "The mail with the code failed or was cancelled. As long as the code works, give it to the person yourself or have the mail tried again."
}

// SignInAsked is said to whoever asked for a sign-in link by mail, which may be
// anybody: it tells nothing of the owner, nor whether there is one.
func SignInAsked() string {
	return "Whether this belongs to an owner is not said here. If it does, look into that owner’s inbox in a minute or two: a link that came signs in once, within half an hour. If none came, ask again after a quarter of an hour."
}

// BookingMailFailed is said of the mail about a booking that did not get out, when
// its task is no longer kept.
func BookingMailFailed() string {
	return "The booking is as shown here, but the mail about it to the visitor's address failed or was cancelled."
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
		JobsFetch: {
			Pending:   "The source is queued to be asked.",
			Running:   "The source is being asked.",
			Retryable: "The source could not be read yet; it will be tried again by itself.",
			Completed: "Done: the result says what the source gave, or why it gave nothing.",
			Discarded: "The source could not be read. Its task says why.",
			Cancelled: "Cancelled: whatever the source may have answered was not kept.",
		},
		MailTest: {
			Pending:   "The test mail is queued.",
			Running:   "The test mail is being handed over.",
			Retryable: "The test mail could not be handed over yet; it will be tried again by itself.",
			Completed: "The test mail was sent.",
			Discarded: "The test mail could not be handed over. Its task says why.",
			Cancelled: "The test mail was cancelled. If an attempt had begun, it may still arrive.",
		},
		ApprovalMail: {
			Pending:   "The code exists. The mail with it is queued.",
			Running:   "The code exists. The mail with it is being handed over.",
			Retryable: "The code exists. The mail with it could not be handed over yet; it will be tried again by itself.",
			Completed: "The code exists, and the mail with it was sent.",
			Discarded: "The mail with the code could not be handed over. As long as the code works, give it to the person yourself or have the mail tried again.",
			Cancelled: "The mail with the code was cancelled. If an attempt had begun, it may still arrive.",
		},
		SignInMail: {
			Pending:   "The sign-in mail is queued.",
			Running:   "The sign-in mail is being handed over.",
			Retryable: "The sign-in mail could not be handed over yet; it will be tried again by itself.",
			Completed: "The sign-in mail was sent.",
			Discarded: "The sign-in mail could not be handed over. Its task says why.",
			Cancelled: "The sign-in mail was cancelled. If an attempt had begun, it may still arrive.",
		},
		BookingMail: {
			Pending:   "The booking is as shown here. The mail about it to the visitor's address is queued.",
			Running:   "The booking is as shown here. The mail about it to the visitor's address is being handed over.",
			Retryable: "The booking is as shown here. The mail about it to the visitor's address could not be handed over yet; it will be tried again by itself.",
			Completed: "The booking is as shown here, and the mail about it was sent to the visitor's address.",
			Discarded: "The booking is as shown here, but the mail about it to the visitor's address could not be handed over.",
			Cancelled: "The booking is as shown here, but the mail about it to the visitor's address was cancelled. If an attempt had begun, it may still arrive.",
		},
		BookingOwnerMail: {
			Pending:   "The mail to the owner about the booking is queued.",
			Running:   "The mail to the owner about the booking is being handed over.",
			Retryable: "The mail to the owner about the booking could not be handed over yet; it will be tried again by itself.",
			Completed: "The mail to the owner about the booking was sent.",
			Discarded: "The mail to the owner about the booking could not be handed over. Its task says why.",
			Cancelled: "The mail to the owner about the booking was cancelled. If an attempt had begun, it may still arrive.",
		},
		MicrositeBuild: {
			Pending:   "The build is queued. What visitors are served does not change by it.",
			Running:   "The build is under way. What visitors are served does not change by it.",
			Retryable: "The build could not be carried out yet; it will be tried again by itself.",
			Completed: "The build has settled: its status says whether it was built or failed. It is live only once it is published.",
			Discarded: "The build could not be carried out, so it counts as failed. Its task says why.",
			Cancelled: "The build was cancelled, so it counts as failed.",
		},
		OwnerNotify: {
			Pending:   "The mail to the owner about the access request is queued.",
			Running:   "The mail to the owner about the access request is being handed over.",
			Retryable: "The mail to the owner about the access request could not be handed over yet; it will be tried again by itself.",
			Completed: "The mail to the owner about the access request was sent.",
			Discarded: "The mail to the owner about the access request could not be handed over. Its task says why.",
			Cancelled: "No mail to the owner about the access request: it was cancelled, or too many were due within an hour. Its task says which.",
		},
		TasksBulk: {
			Pending:   "Queued: none of the matching tasks has been touched yet.",
			Running:   "Working through the matching tasks.",
			Retryable: "Stopped part of the way; it will go on by itself.",
			Completed: "Done: every matching task was gone through.",
			Discarded: "Failed part of the way. Retry it to go on.",
			Cancelled: "Cancelled; what it had done until then stays done.",
		},
		WebhookDeliver: {
			Pending:   "The delivery is queued, or waits for its turn at the endpoint.",
			Running:   "The delivery is being attempted.",
			Retryable: "The last attempt to deliver failed; it will be tried again by itself.",
			Completed: "Delivered: the endpoint took it.",
			Discarded: "Given up: the endpoint did not take it. The error says why, and it can be redelivered.",
			Cancelled: "The delivery was cancelled, or is held because the endpoint is disabled. If an attempt had begun, it may still have arrived.",
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
