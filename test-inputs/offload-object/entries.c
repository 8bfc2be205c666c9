/* A host object as clang makes it for CUDA with -fgpu-rdc, without CUDA: offload entries in LLVM 22's layout, or with OLD=19 and OLD=20 in that
   of these releases. PREFIX keeps two copies apart. */
#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
#ifndef PREFIX
#define PREFIX x
#endif
#ifndef OLD
#define OLD 0
#endif
#ifdef _WIN32
#define PART "$OE"
#else
#define PART
#endif
#if OLD
#define SECTION_2 "cuda_offloading_entries" PART
#define SECTION_4 "hip_offloading_entries" PART
#else
#define SECTION_2 "llvm_offload_entries" PART
#define SECTION_4 SECTION_2
#endif
#define NAMES ".llvm.rodata.offloading"

#if OLD == 19
struct entry {
  void *address;
  const char *name;
  __SIZE_TYPE__ size;
  int flags, data;
};
#define VALUE(kind, flags, target, name, size, data) {(void *)target, name, size, flags, data}
#define ALIGN 1
#else
struct entry {
  unsigned long long reserved;
  unsigned short version, kind;
  unsigned flags;
  void *address;
  const char *name;
  unsigned long long size, data;
  void *aux;
};
#define VALUE(kind, flags, target, name, size, data) {0, 1, kind, flags, (void *)target, name, size, data, 0}
#define ALIGN 8
#endif

#define ENTRY(id, kind, flags, target, size, data)                                                                                    \
  __attribute__((section(NAMES), used)) static const char GLUE(name_, id)[] = TEXT(GLUE(PREFIX, id));                                  \
  extern const struct entry GLUE(entry_, id) __asm__(".offloading.entry." TEXT(GLUE(PREFIX, id)));                                     \
  __attribute__((section(SECTION_##kind), weak, used, aligned(ALIGN))) const struct entry GLUE(entry_, id) =                           \
      VALUE(kind, flags, target, GLUE(name_, id), size, data);

#define kernel_stub GLUE(PREFIX, _kernel_stub)
#define variable GLUE(PREFIX, _variable)
#define weak_stub GLUE(PREFIX, _weak_stub)

void kernel_stub(void) {}
__attribute__((weak)) void weak_stub(void) {}
__attribute__((used, noinline)) static void before(void) {}
__attribute__((used, noinline)) static void static_stub(void) {}
int variable[4] = {1};

ENTRY(_kernel, 2, 0, kernel_stub, 0, 0)
ENTRY(_static, 2, 0, static_stub, 0, 0)
ENTRY(_weak, 2, 0, weak_stub, 0, 0)
ENTRY(_constant, 2, 16, variable, 16, 0)
ENTRY(_managed, 4, 1 | 8, variable, 8, 4)
