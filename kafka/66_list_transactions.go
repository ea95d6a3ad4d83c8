package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListTransactions: v0-2
//
//   - There are no transactions: the list is empty. States that Kafka does not know are named back, as Kafka does.

// transactionStates are those that Kafka knows.
var transactionStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func runListTransactions(_ *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	for _, name := range req.StateFilters {
		if !slices.Contains(transactionStates, name) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	return resp, nil
}
