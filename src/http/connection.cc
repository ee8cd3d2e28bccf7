#include "http/connection.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "http/stream.h"

namespace tdbg::http {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, asio::io_context::executor_type>;

// For TLS's first and last words.
constexpr std::chrono::seconds kHandshake{10};
constexpr size_t kThrownAwayAtOnce = 64 << 10;
constexpr Clock::time_point kNever = Clock::time_point::max();

class StreamConnection final : public Connection, public std::enable_shared_from_this<StreamConnection> {
 public:
  StreamConnection(std::unique_ptr<Stream> stream, const Limits& limits, std::function<void()> gone)
      : stream_(std::move(stream)),
        limits_(limits),
        gone_(std::move(gone)),
        timer_(stream_->socket().get_executor()),
        request_(limits.head_bytes, limits.body_bytes) {}
  ~StreamConnection() override { gone_(); }

  void Begin(const std::function<void(std::shared_ptr<Connection>)>& visit) {
    const bool shakes_hands = stream_->Begin([self = shared_from_this(), visit](Error error) {
      if (!error) visit(self);
    });
    if (!shakes_hands) return visit(shared_from_this());
    SetDeadline(Clock::now() + kHandshake);
  }

  void ReadHead(std::function<void(Progress)> then) override {
    request_.Begin();
    SetDeadline(Clock::now() + limits_.idle);
    Read(Part::kHead, std::move(then));
  }
  void ReadBody(std::function<void(Progress)> then) override { Read(Part::kWhole, std::move(then)); }
  const Request& request() const override { return request_; }

  void Write(std::string head, std::string body, std::function<void(bool)> then) override {
    SetDeadline(Clock::now() + limits_.idle);
    WriteOn(std::make_shared<Writing>(Writing{std::move(head), std::move(body), 0, std::move(then)}));
  }

  void AwaitClose(std::function<void()> then) override { ThrowAway(UINT64_MAX, std::move(then)); }
  void LetSend(uint64_t most) override {
    SetDeadline(answer_deadline_);
    stream_->StopSending();
    ThrowAway(most, [self = shared_from_this()] { self->Close(); });
  }

  void Close() override {
    if (stream_->End([self = shared_from_this()] {})) SetDeadline(Clock::now() + kHandshake);
  }

  void Run(std::function<void()> what) override {
    asio::dispatch(stream_->socket().get_executor(), std::move(what));
  }

 private:
  struct Writing {
    std::string head, body;
    size_t written;
    std::function<void(bool)> then;
  };

  void Read(Part part, std::function<void(Progress)> then) {
    const Progress progress = request_.Parse(part);
    if (progress != Progress::kMore) return Came(part, progress, then);
    const std::span<char> room = request_.Room();
    if (room.empty()) return Came(part, Progress::kHeadTooLong, then);
    stream_->Read(
        room, [self = shared_from_this(), part, then = std::move(then)](Error error, size_t bytes) mutable {
          self->request_.Came(bytes);
          if (error == asio::error::eof) return self->Came(part, self->request_.End(), then);
          if (error) return self->Came(part, Progress::kGone, then);
          self->Read(part, std::move(then));
        });
  }
  void Came(Part part, Progress progress, const std::function<void(Progress)>& then) {
    // Whoever answers has any time.
    if (part == Part::kWhole) SetDeadline(kNever);
    then(progress);
  }

  void WriteOn(std::shared_ptr<Writing> writing) {
    const size_t in_head = std::min(writing->written, writing->head.size());
    const size_t in_body = writing->written - in_head;
    const std::array<asio::const_buffer, 2> rest = {asio::buffer(writing->head) + in_head,
                                                    asio::buffer(writing->body) + in_body};
    stream_->Write(rest,
                   [self = shared_from_this(), writing = std::move(writing)](Error error, size_t bytes) {
                     writing->written += bytes;
                     if (!error && writing->written < writing->head.size() + writing->body.size())
                       return self->WriteOn(writing);
                     self->answer_deadline_ = self->deadline_;
                     self->SetDeadline(kNever);
                     writing->then(!error);
                   });
  }

  // Past TLS: what its client says is not read any more.
  void ThrowAway(uint64_t most, std::function<void()> then) {
    thrown_away_.resize(kThrownAwayAtOnce);
    stream_->socket().async_read_some(
        asio::buffer(thrown_away_),
        [self = shared_from_this(), most, then = std::move(then)](Error error, size_t bytes) mutable {
          if (error || bytes >= most) return then();
          self->ThrowAway(most - bytes, std::move(then));
        });
  }

  // Most deadlines are met and only move on, so a timer that is under way stays, and looks again at its end.
  void SetDeadline(Clock::time_point deadline) {
    deadline_ = deadline;
    if (deadline != kNever && (!timing_ || deadline < timer_.expiry())) Time();
  }
  void Time() {
    timing_ = true;
    timer_.expires_at(deadline_);
    timer_.async_wait([weak = weak_from_this()](Error error) {
      const auto self = weak.lock();
      if (self == nullptr || error) return;
      self->timing_ = false;
      if (self->deadline_ == kNever) return;
      if (Clock::now() < self->deadline_) return self->Time();
      Error ignored;
      self->stream_->socket().close(ignored);  // what is under way fails
    });
  }

  std::unique_ptr<Stream> stream_;
  const Limits limits_;
  const std::function<void()> gone_;
  Timer timer_;
  Request request_;
  std::vector<char> thrown_away_;
  Clock::time_point deadline_ = kNever, answer_deadline_ = kNever;
  bool timing_ = false;
};

}  // namespace

void Connect(std::unique_ptr<Stream> stream, const Limits& limits, std::function<void()> gone,
             const std::function<void(std::shared_ptr<Connection>)>& visit) {
  std::make_shared<StreamConnection>(std::move(stream), limits, std::move(gone))->Begin(visit);
}

}  // namespace tdbg::http
