/* A contender of `bench jpeg` (see codecs.py for the protocol): libjpeg-turbo by its
 * own interface, as a careful user of it writes a decoder of crops.
 *
 *   whole   jpeg_read_scanlines to RGB
 *   region  jpeg_skip_scanlines to the crop's first row, jpeg_crop_scanline to its
 *           columns, which turbo widens to whole MCUs; rows below are not decoded.
 *           The crop is then moved together, so that its rows follow each other.
 *
 * One decompressor and one buffer serve all images, so that no memory is taken for
 * each; what it does is what libjpeg-turbo does by default (islow, fancy upsampling).
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <jpeglib.h>

struct image {
	unsigned char *data;
	unsigned long size;
	unsigned x, y, width, height;
	char *path;
};

static struct jpeg_decompress_struct turbo;
static struct jpeg_error_mgr errors;
static unsigned char *pixels;
static size_t room;

static void die(const char *what, const char *path)
{
	fprintf(stderr, "turbo: %s: %s\n", path, what);
	exit(1);
}

static const struct image *current;

static void failed(j_common_ptr c)
{
	char text[JMSG_LENGTH_MAX];
	c->err->format_message(c, text);
	die(text, current->path);
}

static void *grow(void *p, size_t n)
{
	p = realloc(p, n);
	if (!p)
		die("no memory", "-");
	return p;
}

static struct image load(char *line)
{
	struct image m = { 0 };
	int at = 0;
	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%u %u %u %u %n", &m.x, &m.y, &m.width, &m.height, &at) != 4 || !at)
		die("not a line of the list", line);
	m.path = strdup(line + at);
	FILE *f = fopen(m.path, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		die("cannot be read", m.path);
	long n = ftell(f);
	rewind(f);
	m.data = grow(NULL, n > 0 ? n : 1);
	if (n < 0 || fread(m.data, 1, n, f) != (size_t)n)
		die("cannot be read", m.path);
	m.size = n;
	fclose(f);
	return m;
}

/* decode leaves the RGB in pixels and returns how many bytes that is. */
static size_t decode(const struct image *m, int region)
{
	current = m;
	jpeg_mem_src(&turbo, m->data, m->size);
	jpeg_read_header(&turbo, TRUE);
	turbo.out_color_space = JCS_RGB;
	jpeg_start_decompress(&turbo);
	JDIMENSION x = 0, y = 0, width = turbo.output_width, height = turbo.output_height;
	JDIMENSION from = 0, wide = width;
	if (region) {
		x = from = m->x, y = m->y, width = wide = m->width, height = m->height;
		if (wide != turbo.output_width)
			jpeg_crop_scanline(&turbo, &from, &wide);
		if (y)
			jpeg_skip_scanlines(&turbo, y);
	}
	size_t row = 3 * (size_t)width, lead = 3 * (size_t)(x - from);
	size_t need = row * height + 3 * (size_t)turbo.output_width;
	if (room < need)
		pixels = grow(pixels, room = need);
	for (JDIMENSION i = 0; i < height;) {
		JSAMPROW at = pixels + row * i;
		JDIMENSION got = jpeg_read_scanlines(&turbo, &at, 1);
		if (got && lead)
			memmove(at, at + lead, row);
		i += got;
	}
	if (turbo.output_scanline == turbo.output_height)
		jpeg_finish_decompress(&turbo);
	else
		jpeg_abort_decompress(&turbo);
	return row * height;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	char line[4096];
	struct image *images = NULL;
	size_t n = 0;
	FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (!list)
		die("want the list", argc == 2 ? argv[1] : "");
	while (fgets(line, sizeof line, list)) {
		images = grow(images, (n + 1) * sizeof *images);
		images[n++] = load(line);
	}
	fclose(list);
	turbo.err = jpeg_std_error(&errors);
	errors.error_exit = failed;
	jpeg_create_decompress(&turbo);
	puts("ready libjpeg-turbo");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		char task[16], path[4000];
		int words = sscanf(line, "%15s %3999[^\n]", task, path);
		int region = words > 0 && !strcmp(task, "region");
		if (words < 1 || (!region && strcmp(task, "whole")))
			die("no such task", line);
		FILE *out = NULL;
		if (words == 2 && !(out = fopen(path, "wb")))
			die("cannot be written", path);
		double start = now();
		for (size_t i = 0; i < n; i++) {
			size_t size = decode(&images[i], region);
			if (out && fwrite(pixels, 1, size, out) != size)
				die("cannot be written", path);
		}
		double seconds = now() - start;
		if (out && fclose(out))
			die("cannot be written", path);
		printf("%.9f\n", seconds);
		fflush(stdout);
	}
	return 0;
}
