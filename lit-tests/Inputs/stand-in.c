// A small program in the place of warplink for tools/package.sh: warplink itself answers for it.
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  const char *program = getenv("STAND_IN_FOR");
  (void)argc;
  if (!program)
    return 1;
  execv(program, argv);
  return 1;
}
