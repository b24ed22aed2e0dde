package pack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// networked are the file systems that ask a server for every file, by the magic
// number of statfs(2).
var networked = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.FUSE_SUPER_MAGIC: "a FUSE file system",
	unix.CEPH_SUPER_MAGIC: "CephFS",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.V9FS_MAGIC:       "9p",
	0x0bd00bd0:            "Lustre",
	0x47504653:            "GPFS",
}

// medium says what is slow about the medium that path is on; empty if nothing is.
func medium(path string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if name, ok := networked[uint32(fs.Type)]; ok {
		return name, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	// A partition's folder lies in its disk's, which has the queue.
	dev, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return "", err
	}
	for _, dir := range []string{dev, filepath.Dir(dev)} {
		data, err := os.ReadFile(filepath.Join(dir, "queue", "rotational"))
		if err == nil {
			if strings.TrimSpace(string(data)) == "1" {
				return "a spinning disk", nil
			}
			return "", nil
		}
	}
	return "", nil
}
