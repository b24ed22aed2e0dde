/* Encodes pictures with libjpeg: reads pictures from stdin, each a line "width height"
 * and RGB, and prints, for each, the least of so many rounds' microseconds and the bytes
 * of its file. Arguments: rounds, quality, H and V of luma, whether to optimise. */
#include <stdio.h>
#include <stdlib.h>
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
	int rounds = atoi(argv[1]), width, height;
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr err;
	(void)argc;
	c.err = jpeg_std_error(&err);
	jpeg_create_compress(&c);
	unsigned char *out = NULL;
	unsigned long room = 0;
	while (scanf("%d %d", &width, &height) == 2) {
		size_t n = (size_t)width * height * 3;
		unsigned char *rgb = malloc(n);
		if (getchar() != '\n' || fread(rgb, 1, n, stdin) != n)
			return 1;
		if (room < 2 * n) {
			out = realloc(out, 2 * n);
			room = 2 * n;
		}
		double best = 1e12;
		unsigned long size = 0;
		for (int i = 0; i < rounds; i++) {
			double t = now();
			unsigned char *to = out;
			size = room;
			jpeg_mem_dest(&c, &to, &size);
			c.image_width = width;
			c.image_height = height;
			c.input_components = 3;
			c.in_color_space = JCS_RGB;
			jpeg_set_defaults(&c);
			jpeg_set_quality(&c, atoi(argv[2]), TRUE);
			c.comp_info[0].h_samp_factor = atoi(argv[3]);
			c.comp_info[0].v_samp_factor = atoi(argv[4]);
			c.optimize_coding = atoi(argv[5]);
			jpeg_start_compress(&c, TRUE);
			while (c.next_scanline < c.image_height) {
				JSAMPROW row = rgb + (size_t)3 * width * c.next_scanline;
				jpeg_write_scanlines(&c, &row, 1);
			}
			jpeg_finish_compress(&c);
			t = now() - t;
			if (t < best)
				best = t;
		}
		printf("%.2f\n%lu\n", best, size);
		fflush(stdout);
		free(rgb);
	}
	return 0;
}
