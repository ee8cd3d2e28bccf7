#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/wrapped.h"

namespace tdbg::cli {
namespace {

int first_error = 0;  // of stdout; the main thread alone writes to it

}  // namespace

void WriteOut(std::string_view given) {
  const std::string text = base::PrintableOutput(given);
  if (::fwrite(text.data(), 1, text.size(), stdout) != text.size() && first_error == 0) first_error = errno;
}

void WriteErr(std::string_view text) { WriteProgress(base::PrintableOutput(text)); }

void Note(std::string_view text) { Tell("tdbg: {}\n", base::Wrapped(text, 6)); }

void WriteProgress(std::string_view text) { (void)!::fwrite(text.data(), 1, text.size(), stderr); }

Status FlushOut() {
  if (::fflush(stdout) != 0 && first_error == 0) first_error = errno;
  return first_error == 0 ? OkStatus() : ErrnoStatus(first_error, "cannot write the output");
}

void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one: those below it are taken.
    (void)!::open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  }
}

}  // namespace tdbg::cli
