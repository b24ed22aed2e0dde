// A test double of NVML, as fakecuda.c is one of libcuda.

#include <stdio.h>

typedef int result;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

#ifndef INIT
#define INIT SUCCESS
#endif

static int started;

result nvmlInit_v2(void) {
	if (INIT) return INIT;
	started++;
	return SUCCESS;
}

result nvmlShutdown(void) { return started ? (started--, SUCCESS) : UNINITIALIZED; }
int fake_started(void) { return started; }

result nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "580.159.03"); return SUCCESS; }

result nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
	unsigned bus;
	if (sscanf(pci, "10de:%x:00.0", &bus) != 1 || bus < 0x1b) return NOT_FOUND;
	*device = (void *)(size_t)bus;
	return SUCCESS;
}

struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };

result nvmlDeviceGetUtilizationRates(void *d, struct utilization *u) { (void)d; *u = (struct utilization){93, 41}; return SUCCESS; }
result nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { (void)d; *m = (struct memory){1024ull << 20, 1000ull << 20, 24ull << 20}; return SUCCESS; }
result nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 311500; return d == (void *)0x1b ? SUCCESS : NOT_SUPPORTED; }
result nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *mw) { (void)d; *mw = 700000; return SUCCESS; }
result nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c) { (void)d; *c = 47; return sensor ? INVALID_ARGUMENT : SUCCESS; }
result nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *v) { (void)d; *v = 5; return SUCCESS; }
result nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *v) { (void)d; *v = 16; return SUCCESS; }
