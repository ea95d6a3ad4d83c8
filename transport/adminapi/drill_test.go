package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// struck is a node that drills may strike.
type struck struct {
	*fake
	err error
}

func (s *struck) Drill(_ context.Context, req DrillRequest) (*DrillResult, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &DrillResult{Node: req.Node, Fault: req.Fault, InMS: 100, ReturnsBy: "systemd"}, s.note("%s %s %d %s/%d", req.Node, req.Fault, req.PauseMS, req.Topic, req.Range)
}

func TestDrill_WhatIsAskedArrivesAndNonsenseDoesNot(t *testing.T) {
	node := &struck{fake: &fake{}}
	srv := httptest.NewServer(NewServer(node, Hooks{}))
	defer srv.Close()
	c := NewClient(strings.TrimPrefix(srv.URL, "http://"), nil)
	defer c.Close()
	ctx := context.Background()
	for want, req := range map[string]DrillRequest{
		"n1 kill 0 /0":       {Node: "n1", Fault: DrillKill},
		"n1 restart 0 /0":    {Node: "n1", Fault: DrillRestart},
		"n1 pause 5000 /0":   {Node: "n1", Fault: DrillPause, PauseMS: 5000},
		"n1 wipe 0 orders/3": {Node: "n1", Fault: DrillWipe, Topic: "orders", Range: 3},
	} {
		out, err := c.Drill(ctx, req)
		if err != nil || node.asked != want || out.Fault != req.Fault || out.ReturnsBy != "systemd" {
			t.Errorf("%s: asked %q, answer %+v, %v", want, node.asked, out, err)
		}
	}
	node.asked = ""
	for want, req := range map[string]DrillRequest{
		"no node":    {Fault: DrillKill},
		"want kill":  {Node: "n1", Fault: "burn"},
		"1 to 60000": {Node: "n1", Fault: DrillPause, PauseMS: 60_001},
		"pause of 0": {Node: "n1", Fault: DrillPause},
		"topic \"\"": {Node: "n1", Fault: DrillWipe},
		"range -1":   {Node: "n1", Fault: DrillWipe, Topic: "orders", Range: -1},
	} {
		_, err := c.Drill(ctx, req)
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Code != CodeInvalid || !strings.Contains(refusal.Message, want) || node.asked != "" {
			t.Errorf("%s: got %v, asked %q", want, err, node.asked)
		}
	}
	node.err = fmt.Errorf("%w", Errorf(CodeNotAllowed, "started without --allow-drills"))
	_, err := c.Drill(ctx, DrillRequest{Node: "n1", Fault: DrillKill})
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code != CodeNotAllowed {
		t.Errorf("got %v", err)
	}
}
