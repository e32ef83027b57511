// The function: `handle` is called with each event.
package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/lambda"
)

type event struct {
	Name string `json:"name"`
}

type answer struct {
	Greeting string `json:"greeting"`
}

func handle(_ context.Context, event event) (answer, error) {
	if event.Name == "" {
		event.Name = "world"
	}
	return answer{Greeting: fmt.Sprintf("Hello, %s!", event.Name)}, nil
}

func main() {
	lambda.Start(handle)
}
