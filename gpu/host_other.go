//go:build !linux

package gpu

// inspectHost knows nothing: GPUs are supported on Linux only.
func inspectHost() HostInfo { return HostInfo{Lockable: -1} }
