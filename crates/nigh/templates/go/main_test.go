package main

import (
	"context"
	"testing"
)

func TestItGreetsWhoIsNamed(t *testing.T) {
	for name, greeting := range map[string]string{"Ada": "Hello, Ada!", "": "Hello, world!"} {
		answer, err := handle(context.Background(), event{Name: name})
		if err != nil || answer.Greeting != greeting {
			t.Errorf("%q: %q, %v", name, answer.Greeting, err)
		}
	}
}
