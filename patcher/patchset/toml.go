package patchset

import (
	"bytes"
	"errors"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// decode reads a TOML text into v and refuses keys that v does not have. The
// error is a *DataError.
func decode(text []byte, v any) error {
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(v)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		at := unknown.Errors[0]
		line, _ := at.Position()
		return &DataError{Line: line, Reason: "unknown key " + clip([]byte(strings.Join(at.Key(), ".")))}
	case errors.As(err, &wrong):
		line, _ := wrong.Position()
		return &DataError{Line: line, Reason: clip([]byte(wrong.Error()))}
	case err != nil:
		return &DataError{Reason: err.Error()}
	}
	return nil
}

// checkKeys refuses keys in other letters than decode knows them by. It takes
// "Id" for id, and of both the last one; here there is one spelling.
func checkKeys(text []byte) error {
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		return &DataError{Reason: err.Error()}
	}
	return lower("", tree)
}

func lower(path string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			at := strings.TrimPrefix(path+"."+key, ".")
			if key != strings.ToLower(key) {
				return bad("unknown key %s", clip([]byte(at)))
			}
			if err := lower(at, value); err != nil {
				return err
			}
		}
	case []any:
		for _, value := range v {
			if err := lower(path, value); err != nil {
				return err
			}
		}
	}
	return nil
}
