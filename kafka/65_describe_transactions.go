package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTransactions: v0
//
//   - There are no transactions: every id is TRANSACTIONAL_ID_NOT_FOUND.

func runDescribeTransactions(c *call, kreq kmsg.Request) (kmsg.Response, error) {
	req := kreq.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	for _, id := range req.TransactionalIDs {
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.ProducerID, st.ProducerEpoch, st.StartTimestamp = id, -1, -1, -1
		st.ErrorCode, _ = c.adminAnswer(refuse(kerr.TransactionalIDNotFound, "there are no transactions"))
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}
