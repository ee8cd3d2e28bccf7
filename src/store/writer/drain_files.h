// What the drain thread has open. For drain.cc and drain_renewal.cc.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "store/writer/doorbell.h"
#include "store/writer/drain.h"
#include "store/writer/leftover_sealer.h"
#include "store/writer/locked_files.h"
#include "store/writer/segment_builder.h"
#include "store/writer/syncer.h"
#include "store/writer/tensor_table.h"

namespace tdbg::store {

struct Drain::Files {
  std::unique_ptr<base::FileLock> lock;
  std::unique_ptr<LockedFiles> own;  // for whatever is published beside the lock
  std::unique_ptr<base::MappedFile> journal;
  std::unique_ptr<base::MappedFile> next_journal;  // under its temporary name
  TensorTable tensors;
  std::string segments_directory;
  std::string worker_json;
  std::unique_ptr<Doorbell> doorbell;
  std::unique_ptr<SegmentBuilder> builder;
  std::unique_ptr<Syncer> syncer;
  std::unique_ptr<LeftoverSealer> leftovers;
};

}  // namespace tdbg::store
