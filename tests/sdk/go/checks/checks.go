// Package checks is what the scripts of both Go SDKs share: how a check ends, and what is written to the door.
package checks

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
)

// PartBytes is the smallest size of a part that is not the last.
const PartBytes = 5 << 20

// Hello is the content of an object of which more than the content is looked at, HelloCRC32 its checksum.
const (
	Hello       = "hello"
	HelloCRC32  = "NhCmhg=="
	HelloCRC32C = "mnG7TA=="
	ZeroCRC32   = "AAAAAA=="
)

// OddKeys have to come back as they were written.
var OddKeys = []string{"a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b"}

// EveryByte is a body of every byte value.
func EveryByte() []byte {
	body := make([]byte, 1024)
	for index := range body {
		body[index] = byte(index)
	}
	return body
}

// ManyKeys are one more than a page holds.
func ManyKeys() []string {
	keys := make([]string, 1001)
	for index := range keys {
		keys[index] = fmt.Sprintf("pages/%04d", index)
	}
	return keys
}

// OK says that an operation of the list held.
func OK(operation string) { fmt.Println("ok " + operation) }

// Fail ends the program.
func Fail(format string, arguments ...any) {
	_, file, line, _ := runtime.Caller(2)
	fmt.Fprintf(os.Stderr, "FAILED %s:%d: %s\n", file, line, fmt.Sprintf(format, arguments...))
	os.Exit(1)
}

// Must ends the program if the call failed.
func Must[T any](answer T, err error) T {
	if err != nil {
		Fail("%v", err)
	}
	return answer
}

// Done ends the program if the call failed.
func Done(err error) {
	if err != nil {
		Fail("%v", err)
	}
}

// Equal ends the program if the values differ.
func Equal[T any](found, expected T) {
	if fmt.Sprintf("%v", found) != fmt.Sprintf("%v", expected) {
		Fail("expected %.200v, found %.200v", expected, found)
	}
}

// That ends the program unless it holds.
func That(holds bool, format string, arguments ...any) {
	if !holds {
		Fail(format, arguments...)
	}
}

// Fetch sends a request without credentials.
func Fetch(method, url, body string) (int, string) {
	request := Must(http.NewRequest(method, url, strings.NewReader(body)))
	answer := Must(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	return answer.StatusCode, string(Must(io.ReadAll(answer.Body)))
}

// TwoParts are the bodies of an upload in parts.
func TwoParts() [][]byte {
	return [][]byte{bytes.Repeat([]byte("a"), PartBytes), []byte("z")}
}
