// Command kstatus reads objects as lines of JSON and prints for each, as a line of JSON, what the library kstatus says.
//
// Helm and Flux use this library to tell whether an object is finished. The tests ask it what they would see. With the
// name of a file, it says what a health check of Argo CD in that file says instead, by the interpreter that Argo CD has.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type judge func(*unstructured.Unstructured) (verdict, error)

func byKstatus(object *unstructured.Unstructured) (verdict, error) {
	result, err := status.Compute(object)
	if err != nil {
		return verdict{}, err
	}
	return verdict{string(result.Status), result.Message}, nil
}

// byCheck returns a judge that runs a health check, a Lua script that returns a table, for the global variable obj.
func byCheck(script string) judge {
	return func(object *unstructured.Unstructured) (verdict, error) {
		state := lua.NewState()
		defer state.Close()
		state.SetGlobal("obj", toLua(state, object.Object))
		if err := state.DoString(script); err != nil {
			return verdict{}, err
		}
		health, ok := state.Get(-1).(*lua.LTable)
		if !ok {
			return verdict{}, fmt.Errorf("expected a table, found %s", state.Get(-1).Type())
		}
		return verdict{health.RawGetString("status").String(), health.RawGetString("message").String()}, nil
	}
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch found := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, item := range found {
			table.RawSetString(name, toLua(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range found {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(found)
	case bool:
		return lua.LBool(found)
	case int64:
		return lua.LNumber(found)
	case float64:
		return lua.LNumber(found)
	default:
		return lua.LNil
	}
}

func judgeAll(in io.Reader, out io.Writer, ask judge) error {
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(line); err != nil {
			return err
		}
		found, err := ask(object)
		if err != nil {
			return err
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
}

func run() error {
	ask := byKstatus
	if len(os.Args) > 1 {
		script, err := os.ReadFile(os.Args[1])
		if err != nil {
			return err
		}
		ask = byCheck(string(script))
	}
	return judgeAll(os.Stdin, os.Stdout, ask)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
