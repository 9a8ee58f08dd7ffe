//! The way to the API server, which can be cut and can be silent.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    /// Nothing comes through, and nobody is told.
    Silent,
    /// Connections end, and there are no new ones.
    Cut,
}

pub struct Way {
    pub address: SocketAddr,
    state: Arc<watch::Sender<State>>,
}

impl Way {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, told) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *told.borrow() == State::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server).await else {
                    continue;
                };
                tokio::spawn(between(client, server, told.clone()));
            }
        });
        Self {
            address,
            state: Arc::new(state),
        }
    }

    pub fn becomes(&self, state: State) {
        self.state.send_replace(state);
    }
}

async fn between(client: TcpStream, server: TcpStream, mut told: watch::Receiver<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let silence = told.clone();
    let both = async {
        tokio::join!(
            along(from_client, to_server, silence.clone()),
            along(from_server, to_client, silence)
        )
    };
    tokio::select! {
        _ = both => {}
        _ = told.wait_for(|state| *state == State::Cut) => {}
    }
}

async fn along(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut told: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if told
            .wait_for(|state| *state != State::Silent)
            .await
            .is_err()
        {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
