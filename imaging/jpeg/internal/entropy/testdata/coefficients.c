/* Prints what libjpeg reads of each file named on stdin: for the test that compares
 * coefficients. One line a file:
 *
 *	ok WARNINGS HASH...	a hash for each component's blocks
 *	error CODE
 *
 * A hash is FNV-1a over the coefficients, 16 bits at a time, in natural order, of
 * the component's blocks row by row; padding blocks are left out.
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

static jmp_buf escape;

static void fail(j_common_ptr c) { longjmp(escape, 1 + c->err->msg_code); }

static void count(j_common_ptr c, int level)
{
	switch (c->err->msg_code) {
	case JWRN_NOT_SEQUENTIAL: /* parameters that do not matter */
	case JWRN_ADOBE_XFORM:
	case JWRN_JFIF_MAJOR:
		return;
	}
	if (level < 0)
		c->err->num_warnings++;
}

static void print(const char *name)
{
	struct jpeg_decompress_struct c;
	struct jpeg_error_mgr err;
	FILE *f = fopen(name, "rb");
	if (!f) {
		perror(name);
		exit(1);
	}
	c.err = jpeg_std_error(&err);
	err.error_exit = fail;
	err.emit_message = count;
	jpeg_create_decompress(&c);
	int code = setjmp(escape);
	if (code) {
		printf("error %d\n", code - 1);
	} else {
		jpeg_stdio_src(&c, f);
		jpeg_read_header(&c, TRUE);
		jvirt_barray_ptr *a = jpeg_read_coefficients(&c);
		printf("ok %ld", err.num_warnings);
		for (int i = 0; i < c.num_components; i++) {
			jpeg_component_info *p = &c.comp_info[i];
			uint64_t h = 14695981039346656037u;
			for (JDIMENSION y = 0; y < p->height_in_blocks; y++) {
				JBLOCKARRAY row = c.mem->access_virt_barray((j_common_ptr)&c, a[i], y, 1, FALSE);
				for (JDIMENSION x = 0; x < p->width_in_blocks; x++)
					for (int k = 0; k < 64; k++)
						h = (h ^ (uint16_t)row[0][x][k]) * 1099511628211u;
			}
			printf(" %016llx", (unsigned long long)h);
		}
		printf("\n");
	}
	jpeg_destroy_decompress(&c);
	fclose(f);
}

int main(void)
{
	char name[4096];
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = 0;
		print(name);
		fflush(stdout);
	}
	return 0;
}
