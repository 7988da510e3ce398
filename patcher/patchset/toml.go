package patchset

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// decode reads a TOML text into v, a pointer to a struct. The error is a
// *DataError. Keys that v does not have are for checkKeys to find.
func decode(text []byte, v any) error {
	err := toml.Unmarshal(bytes.TrimPrefix(text, []byte(bom)), v)
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		line, _ := wrong.Position()
		reason := strings.TrimPrefix(wrong.Error(), "toml: ")
		if kind, _, ok := strings.Cut(reason, " into "); ok { // what follows are names of this program's
			reason = strings.Join(wrong.Key(), ".") + ": " + kind
		}
		return &DataError{Line: line, Reason: clip([]byte(reason))}
	}
	if err != nil {
		return &DataError{Reason: clip([]byte(err.Error()))}
	}
	return nil
}

// checkKeys refuses keys that v does not have, and one table in the place of many.
// The reader would pass over the first, take "Id" for id and, of both, the last
// one; and its own search for unknown keys takes a minute for two thousand.
func checkKeys(text []byte, v any) error {
	var tree map[string]any
	if err := decode(text, &tree); err != nil {
		return err
	}
	return checkTree("", tree, reflect.TypeOf(v))
}

func checkTree(path string, tree any, as reflect.Type) error {
	if as.Kind() == reflect.Pointer {
		return checkTree(path, tree, as.Elem())
	}
	switch tree := tree.(type) {
	case map[string]any:
		if as.Kind() != reflect.Struct {
			return bad("%s is one table; write [[%s]]", clip([]byte(path)), path)
		}
		known := map[string]reflect.Type{}
		for i := range as.NumField() {
			known[as.Field(i).Tag.Get("toml")] = as.Field(i).Type
		}
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			at := strings.TrimPrefix(path+"."+key, ".")
			if known[key] == nil {
				return bad("unknown key %s", clip([]byte(at)))
			}
			if err := checkTree(at, tree[key], known[key]); err != nil {
				return err
			}
		}
	case []any:
		for _, one := range tree {
			if err := checkTree(path, one, as.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}
