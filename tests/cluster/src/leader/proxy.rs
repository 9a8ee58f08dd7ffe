//! A network between a candidate and the API server that can be cut.
//!
//! What is sent meanwhile is not lost but late, as TCP has it: it arrives once the network is whole again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

/// What does not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Nothing,
    /// Requests arrive, their answers do not.
    Answers,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// Ends its connections and its threads when dropped.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    network: Arc<Network>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Network {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    cut: Cut,
    closed: bool,
    /// Ends of connections, to wake up who waits for them.
    sockets: Vec<TcpStream>,
    /// Directions of connections that are still open.
    flows: usize,
}

impl Proxy {
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("start a proxy")?;
        let address = listener.local_addr()?;
        let network = Arc::new(Network {
            server,
            state: Mutex::new(State {
                cut: Cut::Nothing,
                closed: false,
                sockets: Vec::new(),
                flows: 0,
            }),
            changed: Condvar::new(),
        });
        let accepting = {
            let network = Arc::clone(&network);
            std::thread::spawn(move || network.accept(&listener))
        };
        Ok(Self {
            address,
            network,
            accepting: Some(accepting),
        })
    }

    pub fn cut(&self, cut: Cut) {
        self.network.state().cut = cut;
        self.network.changed.notify_all();
    }

    /// Whether everything that was sent has arrived, and both sides have hung up.
    pub fn is_idle(&self) -> bool {
        self.network.state().flows == 0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            let mut state = self.network.state();
            state.closed = true;
            for socket in &state.sockets {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        self.network.changed.notify_all();
        // Accepting only ends when there is something to accept.
        if TcpStream::connect(self.address).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
    }
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.state().closed {
                return;
            }
            // A client whose connection fails tries again.
            let Ok((client, server)) = client.and_then(|client| {
                let server = TcpStream::connect(self.server)?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                Ok((client, server))
            }) else {
                continue;
            };
            let _ = self.flow(Direction::ToServer, &client, &server);
            let _ = self.flow(Direction::ToClient, &server, &client);
        }
    }

    fn flow(
        self: &Arc<Self>,
        direction: Direction,
        from: &TcpStream,
        to: &TcpStream,
    ) -> std::io::Result<()> {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let mut state = self.state();
        state.sockets.push(from.try_clone()?);
        state.flows += 1;
        drop(state);
        let network = Arc::clone(self);
        std::thread::spawn(move || {
            // An error ends the flow like the end of the data does.
            let _ = network.carry(direction, from, &to);
            let _ = to.shutdown(Shutdown::Write);
            network.state().flows -= 1;
        });
        Ok(())
    }

    fn carry(
        &self,
        direction: Direction,
        mut from: TcpStream,
        mut to: &TcpStream,
    ) -> std::io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = from.read(&mut buffer)?;
            self.wait_until_whole(direction);
            if count == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..count])?;
        }
    }

    fn wait_until_whole(&self, direction: Direction) {
        let is_cut = |state: &mut State| {
            !state.closed
                && match state.cut {
                    Cut::Nothing => false,
                    Cut::Answers => direction == Direction::ToClient,
                    Cut::Everything => true,
                }
        };
        drop(self.changed.wait_while(self.state(), is_cut));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_test_support::poll;

    use super::*;

    /// A connection through a proxy, and the other end of it.
    fn connected() -> (Proxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
        let client = TcpStream::connect(proxy.address).unwrap();
        let (server, _) = listener.accept().unwrap();
        (proxy, client, server)
    }

    fn read(mut from: &TcpStream) -> Option<u8> {
        let mut byte = [0];
        from.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        from.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn what_is_cut_off_arrives_late() {
        let (proxy, mut client, mut server) = connected();
        proxy.cut(Cut::Answers);
        client.write_all(b"a").unwrap();
        server.write_all(b"b").unwrap();
        let arrived = poll::until("arrival", Duration::from_secs(60), || Ok(read(&server)));
        assert_eq!(arrived.unwrap(), b'a');
        assert_eq!(read(&client), None);
        proxy.cut(Cut::Everything);
        client.write_all(b"c").unwrap();
        assert_eq!(read(&server), None);
        proxy.cut(Cut::Nothing);
        let late = |from| poll::until("arrival", Duration::from_secs(60), || Ok(read(from)));
        assert_eq!(
            (late(&server).unwrap(), late(&client).unwrap()),
            (b'c', b'b')
        );
    }

    #[test]
    fn idle_once_both_have_hung_up() {
        let (proxy, client, server) = connected();
        poll::until("it carries", Duration::from_secs(60), || {
            Ok((!proxy.is_idle()).then_some(()))
        })
        .unwrap();
        drop((client, server));
        poll::until("idle", Duration::from_secs(60), || {
            Ok(proxy.is_idle().then_some(()))
        })
        .unwrap();
    }
}
