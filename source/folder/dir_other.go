//go:build !linux

package folder

type openedDir = portableDir

func openDir(path string) (*openedDir, error) { return openPortableDir(path) }
