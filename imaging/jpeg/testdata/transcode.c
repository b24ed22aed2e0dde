/* Transcodes the files named on stdin to optimised baseline files with libjpeg, without
 * their segments, and prints, for each, the least of so many rounds' microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <jpeglib.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	int rounds = atoi(argv[1]);
	char name[4096];
	struct jpeg_decompress_struct d;
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr err;
	(void)argc;
	d.err = c.err = jpeg_std_error(&err);
	jpeg_create_decompress(&d);
	jpeg_create_compress(&c);
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = 0;
		FILE *f = fopen(name, "rb");
		if (!f)
			return 1;
		fseek(f, 0, SEEK_END);
		long n = ftell(f);
		rewind(f);
		unsigned char *data = malloc(n), *out = malloc(4 * n + 65536);
		if (fread(data, 1, n, f) != (size_t)n)
			return 1;
		fclose(f);
		double best = 1e12;
		for (int i = 0; i < rounds; i++) {
			double t = now();
			unsigned char *to = out;
			unsigned long size = 4 * n + 65536;
			jpeg_mem_src(&d, data, n);
			jpeg_read_header(&d, TRUE);
			jvirt_barray_ptr *a = jpeg_read_coefficients(&d);
			jpeg_copy_critical_parameters(&d, &c);
			c.optimize_coding = TRUE;
			jpeg_mem_dest(&c, &to, &size);
			jpeg_write_coefficients(&c, a);
			jpeg_finish_compress(&c);
			jpeg_finish_decompress(&d);
			t = now() - t;
			if (t < best)
				best = t;
		}
		printf("%.2f\n", best);
		fflush(stdout);
		free(data);
		free(out);
	}
	return 0;
}
