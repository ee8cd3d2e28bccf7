#include "base/catching.h"

#include <exception>
#include <new>
#include <system_error>

namespace tdbg::base {

Status StatusOfException() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error& error) {  // a thread, in all that we do
      return ResourceExhausted(error.what());
    } catch (const std::exception& error) {
      return Internal(error.what());
    } catch (...) {
      return Internal("an exception of no known kind");
    }
  } catch (...) {  // no memory for its text
  }
  return ResourceExhausted("out of memory");  // so short that the string holds it in itself
}

}  // namespace tdbg::base
