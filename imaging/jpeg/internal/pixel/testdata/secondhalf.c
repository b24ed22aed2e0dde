/* Prints, for each name on stdin, the microseconds that libjpeg takes to
 * decode the file to RGB beyond those it takes to read its coefficients, each the
 * least of so many rounds. */
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
	char name[4096];
	int rounds = atoi(argv[1]);
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = 0;
		FILE *f = fopen(name, "rb");
		if (!f)
			return 1;
		fseek(f, 0, SEEK_END);
		long n = ftell(f);
		rewind(f);
		unsigned char *data = malloc(n), *rgb = NULL;
		if (fread(data, 1, n, f) != (size_t)n)
			return 1;
		fclose(f);
		double best[2] = { 1e12, 1e12 };
		for (int i = 0; i < 2 * rounds; i++) {
			double start = now();
			struct jpeg_decompress_struct c;
			struct jpeg_error_mgr e;
			c.err = jpeg_std_error(&e);
			jpeg_create_decompress(&c);
			jpeg_mem_src(&c, data, n);
			jpeg_read_header(&c, TRUE);
			if (i % 2) {
				jpeg_read_coefficients(&c);
			} else {
				c.out_color_space = JCS_RGB;
				jpeg_start_decompress(&c);
				size_t row = 3 * (size_t)c.output_width;
				if (!rgb)
					rgb = malloc(row * c.output_height);
				while (c.output_scanline < c.output_height) {
					JSAMPROW at = rgb + row * c.output_scanline;
					jpeg_read_scanlines(&c, &at, 1);
				}
			}
			jpeg_finish_decompress(&c);
			jpeg_destroy_decompress(&c);
			double took = now() - start;
			if (took < best[i % 2])
				best[i % 2] = took;
		}
		printf("%f\n", best[0] - best[1]);
		fflush(stdout);
		free(data);
		free(rgb);
	}
	return 0;
}
