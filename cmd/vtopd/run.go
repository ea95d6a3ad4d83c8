package main

import (
	"context"
	"errors"
)

func run(context.Context, config) error { return errors.New("not wired yet") }
