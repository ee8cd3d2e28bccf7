#include <fmt/format.h>

#include "ship/destination.h"

namespace tdbg::ship {

Result<Choice> Choice::Make(const Options& options) {
  if (options.every < 1) {
    return InvalidArgument(fmt::format("every: found {}, expected an integer of at least 1", options.every));
  }
  TDBG_ASSIGN_OR_RETURN(Selection tensors, Selection::Make(options.collection, options.regex));
  return Choice(options, std::move(tensors));
}

}  // namespace tdbg::ship
