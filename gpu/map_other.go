//go:build !unix

package gpu

import "errors"

func mapMemory(int64) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapMemory([]byte) error { return errors.ErrUnsupported }
