// Judges histories of objects by porcupine, a checker of linearizability that shares no code with Nigh's own.
//
// Standard input has one operation a line, as JSON. Standard output gets one object: how many objects were judged, which of
// them no order of their operations explains, and which could not be decided in time, with the number of their operations.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long one object may take, and each of the prefixes that are judged if that was too short.
const (
	patience       = 60 * time.Second
	prefixPatience = 5 * time.Second
	prefixes       = 8
)

// What an operation found, and what it made of its object; null is an object that is not there.
type operation struct {
	Object string  `json:"object"`
	Client int     `json:"client"`
	Begin  int64   `json:"begin"`
	End    *int64  `json:"end"`   // absent: nobody knows whether it was done
	Found  string  `json:"found"` // anything, is, is_not
	State  *uint64 `json:"state"` // what it was, or was not
	Writes bool    `json:"writes"`
	Made   *uint64 `json:"made"`
}

// An object's state: 0 is absent, else the value and one.
func state(value *uint64) uint64 {
	if value == nil {
		return 0
	}
	return *value + 1
}

var register = porcupine.Model{
	Init: func() interface{} { return uint64(0) },
	Step: func(now, input, _ interface{}) (bool, interface{}) {
		done := input.(operation)
		switch done.Found {
		case "is":
			if now.(uint64) != state(done.State) {
				// One of which nobody knows may not have been done.
				return done.End == nil, now
			}
		case "is_not":
			if now.(uint64) == state(done.State) {
				return done.End == nil, now
			}
		}
		if done.Writes {
			return true, state(done.Made)
		}
		return true, now
	},
}

// What can explain something. Nobody knows whether an operation without an end was done; so one that only reads says
// nothing. One that writes what nobody has found can be left out too, if nothing found later that the object was not
// something: it may be the last of all.
func telling(operations []porcupine.Operation) []porcupine.Operation {
	found, lastNot := map[uint64]bool{}, int64(math.MinInt64)
	for _, one := range operations {
		input := one.Input.(operation)
		switch {
		case input.Found == "is":
			found[state(input.State)] = true
		case input.Found == "is_not" && input.End != nil && *input.End > lastNot:
			lastNot = *input.End
		}
	}
	kept := []porcupine.Operation{}
	for _, one := range operations {
		input := one.Input.(operation)
		open := input.End == nil
		unseen := input.Writes && input.Made != nil && !found[state(input.Made)] && lastNot < input.Begin
		if !(open && (!input.Writes || unseen)) {
			kept = append(kept, one)
		}
	}
	return kept
}

// What was done before a moment: an operation that had no answer by then may or may not have taken place.
func before(operations []porcupine.Operation, moment int64) []porcupine.Operation {
	begun := []porcupine.Operation{}
	for _, one := range operations {
		if one.Call >= moment {
			continue
		}
		if one.Return > moment {
			input := one.Input.(operation)
			input.End = nil
			one.Input, one.Return = input, math.MaxInt64
		}
		begun = append(begun, one)
	}
	return begun
}

// Whether an order explains the operations of an object. An order of all of them explains every prefix too: where all are
// too many to search, one prefix without an order refuses the object.
func judge(operations []porcupine.Operation) porcupine.CheckResult {
	result := porcupine.CheckOperationsTimeout(register, telling(operations), patience)
	if result != porcupine.Unknown {
		return result
	}
	ends := []int64{}
	for _, one := range operations {
		if one.Return != math.MaxInt64 {
			ends = append(ends, one.Return)
		}
	}
	sort.Slice(ends, func(i, j int) bool { return ends[i] < ends[j] })
	for part := 1; part < prefixes && len(ends) > 0; part++ {
		moment := ends[part*(len(ends)-1)/prefixes]
		prefix := telling(before(operations, moment))
		if porcupine.CheckOperationsTimeout(register, prefix, prefixPatience) == porcupine.Illegal {
			return porcupine.Illegal
		}
	}
	return porcupine.Unknown
}

func main() {
	objects := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<20)
	count := 0
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintf(os.Stderr, "line %d: %v\n", count+1, err)
			os.Exit(2)
		}
		end := int64(math.MaxInt64)
		if one.End != nil {
			end = *one.End
		}
		objects[one.Object] = append(objects[one.Object], porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Begin, Output: nil, Return: end,
		})
		count++
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	broken, undecided := []string{}, map[string]int{}
	for object, operations := range objects {
		switch judge(operations) {
		case porcupine.Illegal:
			broken = append(broken, object)
		case porcupine.Unknown:
			undecided[object] = len(operations)
		}
	}
	sort.Strings(broken)
	said := map[string]interface{}{
		"operations": count, "objects": len(objects), "broken": broken, "undecided": undecided,
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
