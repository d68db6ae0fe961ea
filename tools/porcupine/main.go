// Judge histories of registers with Porcupine, beside the judge of sharding_app.torture.
//
// It reads one operation a line from the file that it is given, and prints one line of JSON: how many registers have a
// linearizable history, which have not, and which could not be decided in time.
//
//	go build -o porcupine . && ./porcupine operations.jsonl
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Many calls of unknown outcome make a history hard to decide: the run that waits for this has other work to do.
const (
	perRegister = 5 * time.Second
	forAll      = 60 * time.Second
)

// A line of the file. Without an end the operation may take effect at any time; without a value its answer is not known.
type line struct {
	Entity string     `json:"entity"`
	Token  string     `json:"token"`
	Start  int64      `json:"start"`
	End    *int64     `json:"end"`
	Value  *[2]uint32 `json:"value"`
}

// The state of a register: how many tokens it holds, and a digest over them.
type state [2]uint32

func step(before, input, output interface{}) (bool, interface{}) {
	now, call := before.(state), input.(line)
	if call.Token != "" {
		now = state{now[0] + 1, crc32.Update(now[1], crc32.IEEETable, []byte(call.Token))}
	}
	return call.Value == nil || state(*call.Value) == now, now
}

var register = porcupine.Model{
	Init:  func() interface{} { return state{} },
	Step:  step,
	Equal: func(one, other interface{}) bool { return one.(state) == other.(state) },
}

type verdict struct {
	Linearizable int      `json:"linearizable"`
	Illegal      []string `json:"illegal"`
	Undecided    []string `json:"undecided"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine FILE")
		os.Exit(2)
	}
	histories, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	found := verdict{Illegal: []string{}, Undecided: []string{}}
	until := time.Now().Add(forAll)
	for entity, history := range histories {
		seconds := min(perRegister, time.Until(until))
		if seconds <= 0 {
			found.Undecided = append(found.Undecided, entity)
			continue
		}
		switch porcupine.CheckOperationsTimeout(register, history, seconds) {
		case porcupine.Ok:
			found.Linearizable++
		case porcupine.Illegal:
			found.Illegal = append(found.Illegal, entity)
		default:
			found.Undecided = append(found.Undecided, entity)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(2)
	}
}

func read(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	histories := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(file)
	for number := 0; lines.Scan(); number++ {
		var call line
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		end := int64(math.MaxInt64)
		if call.End != nil {
			end = *call.End
		}
		histories[call.Entity] = append(histories[call.Entity], porcupine.Operation{
			ClientId: number, Input: call, Call: call.Start, Output: call.Value, Return: end,
		})
	}
	return histories, lines.Err()
}
