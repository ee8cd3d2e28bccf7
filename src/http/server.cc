#include "http/server.h"

#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <list>
#include <utility>

#include "http/stream.h"

namespace tdbg::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Executor = asio::io_context::executor_type;
using Acceptor = asio::basic_socket_acceptor<tcp, Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

// How long nothing is taken once there was no descriptor for it.
constexpr std::chrono::milliseconds kPause{100};

// Asio leaves its sockets to every child, and a child may outlive the server: it would hold its port, where
// clients wait for ever and the next server cannot listen.
template <typename AnySocket>
void KeepFromChildren(AnySocket& socket) {
  (void)::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

class AsioServer final : public Server {
 public:
  AsioServer() : signals_(context_.get_executor(), SIGINT, SIGTERM) {}

  Result<uint16_t> Open(Door door) override {
    Error error;
    const auto address = asio::ip::make_address(door.address, error);
    if (error) return InvalidArgument(door.address + " is no IP address");
    Acceptor acceptor(context_.get_executor());
    acceptor.open(address.is_v4() ? tcp::v4() : tcp::v6(), error);
    if (!error) KeepFromChildren(acceptor);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind({address, door.port}, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return Unavailable(error.message());
    return open_.emplace_back(std::move(door), std::move(acceptor)).acceptor.local_endpoint().port();
  }

  void After(std::chrono::milliseconds pause, std::function<void()> what) override {
    const auto timer = std::make_shared<Timer>(context_.get_executor(), pause);
    timer->async_wait([timer, what = std::move(what)](Error error) {
      if (!error) what();
    });
  }

  void Serve() override {
    signals_.async_wait([this](Error error, int) {
      if (!error) context_.stop();
    });
    for (OpenDoor& door : open_) Accept(&door);
    context_.run();
  }
  void Stop() override {
    asio::post(context_, [this] { context_.stop(); });
  }

 private:
  struct OpenDoor {
    OpenDoor(Door opened, Acceptor listening) : door(std::move(opened)), acceptor(std::move(listening)) {}
    Door door;
    Acceptor acceptor;
    /// Of those that have come in here: they may outlive the door, in handlers of the context.
    std::shared_ptr<size_t> connections = std::make_shared<size_t>(0);
  };

  void Accept(OpenDoor* open) {
    open->acceptor.async_accept([this, open](Error error, Socket socket) {
      if (error == asio::error::operation_aborted) return;
      // Out of descriptors: clients wait in the backlog until there is one.
      if (error) return After(kPause, [this, open] { Accept(open); });
      if (*open->connections < open->door.limits.connections) Take(open, std::move(socket));
      Accept(open);
    });
  }
  static void Take(OpenDoor* open, Socket socket) {
    const Door& door = open->door;
    KeepFromChildren(socket);
    Error ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    ++*open->connections;
    Connect(
        door.tls ? TlsStream(std::move(socket), door.tls) : PlainStream(std::move(socket)), door.limits,
        [connections = open->connections] { --*connections; }, door.visit);
  }

  asio::io_context context_{1};
  asio::signal_set signals_;
  std::list<OpenDoor> open_;
};

}  // namespace

std::unique_ptr<Server> Server::Create() { return std::make_unique<AsioServer>(); }

}  // namespace tdbg::http
