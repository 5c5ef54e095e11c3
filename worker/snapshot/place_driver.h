// A driver for HDF5 that gives chunks their places in a file and leaves it to others to write them
// there: HDF5 itself writes on one thread and by way of the page cache. Private to this folder.
// Callers hold an Hdf5Lock.
#pragma once
#include <hdf5.h>

namespace longhaul {

// As H5FD_SEC2, the driver that HDF5 has for files, in everything but this: data that are given as
// `not_here()` are not written, and nothing is read where it points to. Negative on failure.
hid_t place_driver();
const void* not_here();

}  // namespace longhaul
