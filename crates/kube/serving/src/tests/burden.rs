//! Defects, and clients who take or give too little.

use super::*;
use futures::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{BoxError, service_fn};

async fn breaks(request: Request<Arriving>) -> Result<Response<Full<Bytes>>, Infallible> {
    match request.uri().path() {
        "/defect" => panic!("a defect"),
        _ => Ok(Response::new(Full::from("well"))),
    }
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    let authority = Authority::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let config = Config {
            tls: Some(Tls::new(authority.server().given())),
            ..Config::loopback()
        };
        let serving = config.bind().await.unwrap().spawn(service_fn(breaks));
        let client = connector(&authority.pem(), None, protocol);
        let (status, told) = get(&client, serving.local_addr(), "/defect").await.unwrap();
        assert_eq!(status, 500, "{protocol:?}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["reason"], "InternalError");
        assert_eq!(serving.counters().panics(), 1);
        let well = get(&client, serving.local_addr(), "/").await.unwrap();
        assert_eq!(well, (200, "well".to_owned()));
    }
}

/// An answer that breaks half-way is cut short, and counted.
#[tokio::test]
async fn a_panic_in_a_body_is_counted() {
    let service = service_fn(|_: Request<Arriving>| async {
        let pieces = futures::stream::iter(0..3).map(|n| {
            assert!(n < 2, "a defect");
            Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"piece")))
        });
        Ok::<_, Infallible>(Response::new(StreamBody::new(pieces)))
    });
    let serving = Config::loopback().bind().await.unwrap().spawn(service);
    let mut client = TcpStream::connect(serving.local_addr()).await.unwrap();
    let asked = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(asked.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    // Whether it ends or is reset is the kernel's choice.
    let _ = client.read_to_end(&mut told).await;
    assert!(!told.ends_with(b"0\r\n\r\n"), "it looks whole");
    assert_eq!(serving.counters().panics(), 1);
}

type Outcomes = Arc<Mutex<Vec<Result<usize, String>>>>;

/// Reads what it is sent.
fn reader() -> (
    Outcomes,
    impl Service<Request<Arriving>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static,
) {
    let outcomes = Outcomes::default();
    let told = outcomes.clone();
    let service = service_fn(move |request: Request<Arriving>| {
        let outcomes = outcomes.clone();
        async move {
            let read = request.into_body().collect().await;
            let read = read.map(|read| read.to_bytes().len());
            let read = read.map_err(|error| error.to_string());
            outcomes.lock().unwrap().push(read);
            Ok::<_, Infallible>(Response::new(Full::default()))
        }
    });
    (told, service)
}

#[tokio::test(start_paused = true)]
async fn a_body_must_come_at_a_pace() {
    let slow = Err("the request's body took too long".to_owned());
    // How many bytes come each second, and of how many.
    for (piece, pieces, expected) in [
        (0, 1, slow.clone()),
        // Something always comes, but too little.
        (100, 100, slow),
        (100, 5, Ok(500)),
        (70_000, 60, Ok(4_200_000)),
    ] {
        let (outcomes, service) = reader();
        let (mut client, task, _) = open(Protocol::Http1, service);
        let length = piece * pieces + usize::from(piece == 0);
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let body = vec![b'x'; piece];
        for _ in 0..pieces {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // A client that is late is hung up on.
            if client.write_all(&body).await.is_err() {
                break;
            }
        }
        let mut answer = vec![0; 12];
        client.read_exact(&mut answer).await.unwrap();
        drop(client);
        task.await.unwrap();
        assert_eq!(outcomes.lock().unwrap()[..], [expected], "{piece} {pieces}");
    }
}

/// On HTTP/2 a client can read the socket, and say that there is no room for the answer.
#[tokio::test(start_paused = true)]
async fn who_takes_nothing_is_cut_off() {
    let service = service_fn(|_: Request<Arriving>| async {
        Ok::<_, Infallible>(Response::new(Full::from(vec![0; 4 << 20])))
    });
    let (client, task, _) = open(Protocol::Http2, service);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(5))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1000)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://x/").body(Empty::<Bytes>::new());
    let reply = sender.send_request(request.unwrap()).await.unwrap();
    let began = tokio::time::Instant::now();
    task.await.unwrap();
    assert!(began.elapsed() <= Limits::default().stalled * 2);
    reply.into_body().collect().await.unwrap_err();
    let _ = connection.await;
}

/// A byte now and then is not reading.
#[tokio::test(start_paused = true)]
async fn who_takes_too_little_is_cut_off() {
    let service = service_fn(|_: Request<Arriving>| async {
        Ok::<_, Infallible>(Response::new(Full::from(vec![0; 4 << 20])))
    });
    let (mut client, task, _) = open(Protocol::Http1, service);
    let asked = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(asked.as_bytes()).await.unwrap();
    let trickle = tokio::spawn(async move {
        let mut byte = [0];
        while client.read(&mut byte).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let began = tokio::time::Instant::now();
    task.await.unwrap();
    assert!(began.elapsed() <= Limits::default().stalled * 2);
    trickle.abort();
}

/// One user with many connections is refused, told when to come back, and hung up on; others are served.
#[tokio::test]
async fn nobody_takes_all_connections() {
    let service = service_fn(|request: Request<Arriving>| async move {
        let visit = request.extensions().get::<Visit>().unwrap();
        let user = request.headers()["user"].to_str().unwrap();
        let status = match visit.admit(user, &[], Lasting::Short) {
            Ok(()) => 200,
            Err(TooMuch) => 429,
        };
        let mut answer = Response::new(Full::<Bytes>::default());
        *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
        Ok::<_, Infallible>(answer)
    });
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::loopback()
    };
    let serving = config.bind().await.unwrap().spawn(service);
    let mut open = Vec::new();
    let mut ask = async |user: &str| {
        let mut client = TcpStream::connect(serving.local_addr()).await.unwrap();
        let asked = format!("GET / HTTP/1.1\r\nHost: x\r\nUser: {user}\r\n\r\n");
        client.write_all(asked.as_bytes()).await.unwrap();
        let mut told = vec![0; 1000];
        let length = client.read(&mut told).await.unwrap();
        open.push(client);
        let told = String::from_utf8_lossy(&told[..length]).into_owned();
        let is_last = told.to_lowercase().contains("connection: close");
        (told[9..12].to_owned(), is_last)
    };
    let served = |text: &str, is_last| (text.to_owned(), is_last);
    for _ in 0..4 {
        assert_eq!(ask("greedy").await, served("200", false));
    }
    assert_eq!(ask("greedy").await, served("429", true));
    assert_eq!(ask("other").await, served("200", false));
    assert_eq!(serving.counters().refused_for_others(), 1);
}
