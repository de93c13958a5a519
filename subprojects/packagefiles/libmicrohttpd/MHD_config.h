/* What the library's configure script finds on Linux with glibc; features that Quire does not use are off. */
#ifndef MHD_CONFIG_H
#define MHD_CONFIG_H

#define _GNU_SOURCE 1
#define LINUX 1
#define VERSION "0.9.75"
#define PACKAGE_VERSION VERSION

#define EPOLL_SUPPORT 1
#define HAVE_MESSAGES 1
#define HAVE_INET6 1
#define MHD_USE_POSIX_THREADS 1
#define MHD_USE_GETSOCKNAME 1
#define HAVE_LISTEN_SHUTDOWN 1
#define _MHD_ITC_EVENTFD 1

#define INLINE_FUNC 1
#define _MHD_static_inline static inline __attribute__((always_inline))
#define _MHD_NORETURN _Noreturn
#define _MHD_EXTERN extern
#define HAVE___FUNC__ 1
#define HAVE_C_ALIGNOF 1
#define HAVE_C_VARARRAYS 1
#define HAVE_REAL_BOOL 1
#define MHD_HAVE___BUILTIN_BSWAP32 1
#define MHD_HAVE___BUILTIN_BSWAP64 1
#define STDC_HEADERS 1
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_UINT64_T 8
#define SIZEOF_UNSIGNED_INT __SIZEOF_INT__
#define SIZEOF_UNSIGNED_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_STRUCT_TIMEVAL_TV_SEC __SIZEOF_LONG__

#define HAVE_ACCEPT4 1
#define HAVE_CALLOC 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_EPOLL_CREATE1 1
#define HAVE_FORK 1
#define HAVE_FSEEKO 1
#define HAVE_GETSOCKNAME 1
#define HAVE_GETTIMEOFDAY 1
#define HAVE_GMTIME_R 1
#define HAVE_LINUX_SENDFILE 1
#define HAVE_LSEEK64 1
#define HAVE_MEMMEM 1
#define HAVE_NANOSLEEP 1
#define HAVE_POLL 1
#define HAVE_PREAD 1
#define HAVE_PREAD64 1
#define HAVE_PTHREAD_SETNAME_NP_GNU 1
#define HAVE_PTHREAD_SIGMASK 1
#define HAVE_RANDOM 1
#define HAVE_SENDFILE64 1
#define HAVE_SENDMSG 1
#define HAVE_SNPRINTF 1
#define HAVE_SOCK_NONBLOCK 1
#define HAVE_SYSCONF 1
#define HAVE_TIMESPEC_GET 1
#define HAVE_TSEARCH 1
#define HAVE_TWALK 1
#define HAVE_USLEEP 1
#define HAVE_WAITPID 1
#define HAVE_WRITEV 1

#define HAVE_ARPA_INET_H 1
#define HAVE_DLFCN_H 1
#define HAVE_ENDIAN_H 1
#define HAVE_ERRNO_H 1
#define HAVE_FCNTL_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_LIMITS_H 1
#define HAVE_NETDB_H 1
#define HAVE_NETINET_IN_H 1
#define HAVE_NETINET_IP_H 1
#define HAVE_NETINET_TCP_H 1
#define HAVE_NET_IF_H 1
#define HAVE_POLL_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_SEARCH_H 1
#define HAVE_SIGNAL_H 1
#define HAVE_STDALIGN_H 1
#define HAVE_STDBOOL_H 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_STDIO_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STRINGS_H 1
#define HAVE_STRING_H 1
#define HAVE_SYS_EVENTFD_H 1
#define HAVE_SYS_IOCTL_H 1
#define HAVE_SYS_MMAN_H 1
#define HAVE_SYS_MSG_H 1
#define HAVE_SYS_PARAM_H 1
#define HAVE_SYS_SELECT_H 1
#define HAVE_SYS_SOCKET_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_TIME_H 1
#define HAVE_UNISTD_H 1

#ifndef NDEBUG
#define NDEBUG 1
#endif

#endif
