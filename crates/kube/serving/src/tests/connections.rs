//! Slow, silent, rude and too many clients, and the end.

use super::*;
use http_body_util::channel::Channel;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::service_fn;

#[tokio::test(start_paused = true)]
async fn a_silent_client_has_half_a_minute() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (client, task, _) = open(protocol, service_fn(describe));
        let began = tokio::time::Instant::now();
        task.await.unwrap();
        assert_eq!(began.elapsed(), Limits::default().head, "{protocol:?}");
        drop(client);
    }
}

/// Pings between requests are no slow request; and whoever asks nothing for long is told to go, not cut off.
#[tokio::test(start_paused = true)]
async fn an_idle_http2_client_is_told_to_go() {
    let (client, task, _) = open(Protocol::Http2, service_fn(describe));
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let began = tokio::time::Instant::now();
    for _ in 0..3 {
        let request = Request::get("https://x/").body(Empty::<Bytes>::new());
        let reply = sender.send_request(request.unwrap()).await.unwrap();
        reply.into_body().collect().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    connection.await.unwrap().unwrap();
    task.await.unwrap();
    let asked_last = Duration::from_secs(120);
    let idle = Limits::default().idle;
    assert!(
        began.elapsed() >= asked_last + idle,
        "{:?}",
        began.elapsed()
    );
    assert!(began.elapsed() <= asked_last + 2 * idle);
}

#[tokio::test]
async fn the_last_answer_ends_an_http2_connection() {
    for (protocol, ends) in [(Protocol::Http2, true), (Protocol::Http1, false)] {
        let authority = Authority::new();
        let config = Config {
            tls: Some(Tls::new(authority.server().given())),
            ..Config::loopback()
        };
        let serving = config.bind().await.unwrap().spawn(service_fn(async |_| {
            let mut answer = Response::new(Full::new(Bytes::from("go")));
            answer.extensions_mut().insert(GoAway);
            Ok::<_, Infallible>(answer)
        }));
        let client = connector(&authority.pem(), None, protocol);
        let stream = TokioIo::new(connect(&client, serving.local_addr()).await.unwrap());
        let request = Request::get("https://localhost/").header("host", "localhost");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        // The sender is held: without it the client would hang up by itself.
        let (reply, connection, _held): (_, _, Box<dyn std::any::Any>) = match protocol {
            Protocol::Http2 => {
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                        .await
                        .unwrap();
                let connection = tokio::spawn(connection);
                let reply = sender.send_request(request).await;
                (reply, connection, Box::new(sender))
            }
            Protocol::Http1 => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(stream).await.unwrap();
                let connection = tokio::spawn(connection);
                let reply = sender.send_request(request).await;
                (reply, connection, Box::new(sender))
            }
        };
        let body = reply.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "go");
        if ends {
            let ended = tokio::time::timeout(SOON, connection).await;
            ended.unwrap().unwrap().unwrap();
            until(async || serving.counters().open_connections() == 0).await;
        } else {
            assert_eq!(serving.counters().open_connections(), 1);
        }
    }
}

#[tokio::test]
async fn plain_http_to_an_https_port() {
    let authority = Authority::new();
    let config = Config {
        tls: Some(Tls::new(authority.server().given())),
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let mut client = TcpStream::connect(serving.local_addr()).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(
        text,
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
}

#[tokio::test]
async fn streams_on_one_connection_are_limited_as_told() {
    let limits = Limits {
        streams: 250,
        ..Limits::default()
    };
    let authority = Authority::new();
    let config = Config {
        tls: Some(Tls::new(authority.server().given())),
        limits,
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let client = connector(&authority.pem(), None, Protocol::Http2);
    let stream = connect(&client, serving.local_addr()).await.unwrap();
    let (_sender, mut connection) = hyper::client::conn::http2::handshake::<_, _, Empty<Bytes>>(
        TokioExecutor::new(),
        TokioIo::new(stream),
    )
    .await
    .unwrap();
    until(async || {
        let _ = futures::poll!(&mut connection);
        connection.current_max_send_streams() == 250
    })
    .await;
}

/// A watch: an answer that goes on until the server stops.
fn endless(shutdown: plimsoll_client::shutdown::Shutdown) -> Response<Channel<Bytes, Infallible>> {
    let (mut sender, body) = Channel::new(1);
    tokio::spawn(async move {
        let _ = sender.send_data(Bytes::from_static(b"first\n")).await;
        shutdown.begins().await;
        let _ = sender.send_data(Bytes::from_static(b"last\n")).await;
    });
    Response::new(body)
}

#[tokio::test]
async fn draining_ends_streams_and_cuts_off_what_hangs() {
    tokio::join!(
        draining_with(Protocol::Http1),
        draining_with(Protocol::Http2)
    );
}

async fn draining_with(protocol: Protocol) {
    let authority = Authority::new();
    let config = Config {
        tls: Some(Tls::new(authority.server().given())),
        ..Config::loopback()
    };
    let bound = config.bind().await.unwrap();
    let shutdown = bound.shutdown();
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let serving = bound.spawn(service_fn(move |request: Request<Arriving>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let hang = request.uri().path() == "/hang";
        let shutdown = shutdown.clone();
        async move {
            match hang {
                true => std::future::pending().await,
                false => Ok::<_, Infallible>(endless(shutdown)),
            }
        }
    }));
    let address = serving.local_addr();
    let ask = |path: &'static str| {
        let client = connector(&authority.pem(), None, protocol);
        let get = async move { get(&client, address, path).await.map_err(|e| e.to_string()) };
        tokio::spawn(get)
    };
    let (watching, hanging) = (ask("/watch"), ask("/hang"));
    until(async || asked.load(Ordering::Relaxed) == 2).await;
    let counters = serving.counters();
    // Long enough for the watch to end on a busy machine; what hangs takes all of it.
    assert_eq!(serving.drain(Duration::from_secs(2)).await, 1);
    assert_eq!(watching.await.unwrap().unwrap().1, "first\nlast\n");
    hanging.await.unwrap().unwrap_err();
    assert_eq!(counters.open_connections(), 0);
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn half_a_request_does_not_hold_up_draining() {
    let serving = Config::loopback().bind().await.unwrap();
    let serving = serving.spawn(service_fn(describe));
    let mut slow = TcpStream::connect(serving.local_addr()).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
    until(async || serving.counters().open_connections() == 1).await;
    let cut_off_at_the_deadline = serving.drain(SOON).await;
    assert_eq!(cut_off_at_the_deadline, 0);
}

#[tokio::test]
async fn those_who_only_hold_a_place_do_not_keep_others_out() {
    let authority = Authority::new();
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let config = Config {
        tls: Some(Tls::new(authority.server().given())),
        limits,
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let address = serving.local_addr();
    let _silent = TcpStream::connect(address).await.unwrap();
    let client = connector(&authority.pem(), None, Protocol::Http2);
    let _idle = connect(&client, address).await.unwrap();
    let late = tokio::time::timeout(SOON, get(&client, address, "/")).await;
    assert_eq!(late.unwrap().unwrap().0, 200);
    assert!(serving.counters().times_crowded() > 0);
}
