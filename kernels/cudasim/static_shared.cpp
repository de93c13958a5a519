/* A __shared__ variable is a function's static one, which a compiler may place anywhere and g++
 * does not let into a section of its own in a template. But its name can carry a tag, so the symbol
 * table of the file that the kernel was loaded from says where all of them are. */
#include "static_shared.h"

#include "fatal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

namespace cudasim {

static const char TAG[] = "cudasim_shared";

/* Mapped: of tens of megabytes of code only the symbol table is looked at. */
static memory_range map_file(const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0)
        fatal("the kernel's file %s cannot be read", path);
    size_t bytes = (size_t)status.st_size;
    void *start = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED)
        fatal("the kernel's file %s cannot be read", path);
    close(file);
    return {static_cast<char *>(start), bytes};
}

/* `count` elements at `offset` of the file; ends the process when it is shorter. */
template <class T> static const T *at(const memory_range &file, size_t offset, size_t count) {
    if (offset > file.bytes || count > (file.bytes - offset) / sizeof(T))
        fatal("the symbol table of the kernel's file is out of its bounds");
    return reinterpret_cast<const T *>(file.start + offset);
}

static void add_tagged(const memory_range &file, const ElfW(Shdr) & symbols,
                       const ElfW(Shdr) & strings, uintptr_t load_address,
                       std::vector<memory_range> *out) {
    size_t count = symbols.sh_size / sizeof(ElfW(Sym));
    const ElfW(Sym) *symbol = at<ElfW(Sym)>(file, symbols.sh_offset, count);
    const char *names = at<char>(file, strings.sh_offset, strings.sh_size);
    for (size_t i = 0; i < count; i++, symbol++) {
        /* the low bits: STT_OBJECT in both classes */
        bool is_variable = ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && symbol->st_value != 0;
        if (is_variable && symbol->st_name < strings.sh_size &&
            strstr(names + symbol->st_name, TAG) != nullptr)
            out->push_back({reinterpret_cast<char *>(load_address + symbol->st_value),
                            (size_t)symbol->st_size});
    }
}

static std::vector<memory_range> find_tagged(const char *path, uintptr_t load_address) {
    std::vector<memory_range> found;
    memory_range file = map_file(path);
    const ElfW(Ehdr) *header = at<ElfW(Ehdr)>(file, 0, 1);
    const ElfW(Shdr) *sections = at<ElfW(Shdr)>(file, header->e_shoff, header->e_shnum);
    for (int i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < header->e_shnum)
            add_tagged(file, sections[i], sections[sections[i].sh_link], load_address, &found);
    munmap(file.start, file.bytes);
    return found;
}

const std::vector<memory_range> &static_shared_of(const void *kernel) {
    static auto *const by_module = new std::map<const void *, std::vector<memory_range>>;
    Dl_info info;
    void *extra;
    if (dladdr1(kernel, &info, &extra, RTLD_DL_LINKMAP) == 0)
        fatal("the kernel's file is not found");
    const link_map *module = static_cast<const link_map *>(extra);
    auto found = by_module->find(module);
    if (found == by_module->end()) {
        const char *path = *module->l_name == '\0' ? "/proc/self/exe" : module->l_name;
        found = by_module->emplace(module, find_tagged(path, module->l_addr)).first;
    }
    return found->second;
}

} // namespace cudasim
