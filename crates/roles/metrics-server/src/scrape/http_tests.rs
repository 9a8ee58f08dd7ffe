//! Answers in every form, in pieces of every size.

use proptest::prelude::*;
use tokio::io::duplex;

use super::*;

const LIMIT: usize = 1000;

/// What is made of an answer that comes in pieces of this size, and is followed by the end of the connection.
async fn receive(answer: &[u8], piece: usize) -> Result<(Answer, Vec<u8>), HttpError> {
    let (mut ours, mut theirs) = duplex(piece);
    let answer = answer.to_vec();
    let server = tokio::spawn(async move {
        let mut request = [0; 4];
        theirs.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"GET\n");
        // An answer that is refused half-way is not read to its end.
        let _ = theirs.write_all(&answer).await;
    });
    let mut buffer = b"what was there before".to_vec();
    let answer = exchange(&mut ours, b"GET\n", &mut buffer, LIMIT).await;
    drop(ours);
    server.await.unwrap();
    let answer = answer?;
    let body = buffer[answer.body.clone()].to_vec();
    Ok((answer, body))
}

#[track_caller]
fn check(answer: &str, expected: Result<(u16, &str, bool), &str>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for piece in [1, 7, 64 * 1024] {
        let found = runtime.block_on(receive(answer.as_bytes(), piece));
        let found = found
            .map(|(answer, body)| {
                let body = String::from_utf8(body).unwrap();
                (answer.status, body, answer.reusable)
            })
            .map_err(|error| error.to_string());
        let found = match &found {
            Ok((status, body, reusable)) => Ok((*status, &**body, *reusable)),
            Err(error) => Err(&**error),
        };
        assert_eq!(found, expected, "in pieces of {piece}");
    }
}

#[test]
fn bodies_of_all_kinds() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
        Ok((200, "hello", true)),
    );
    check(
        "HTTP/1.1 200 OK\r\ncontent-length:5\r\nConnection: Close\r\n\r\nhello",
        Ok((200, "hello", false)),
    );
    check(
        "HTTP/1.0 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        Ok((403, "", false)),
    );
    check(
        "HTTP/1.1 200 OK\r\n\r\nto the end",
        Ok((200, "to the end", false)),
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
        Ok((200, "hello", true)),
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
        Ok((200, "0123456789", true)),
    );
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        Ok((200, "ok", true)),
    );
    check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "", true)));
    // A header that goes on in the next line, and a length that is told twice.
    check(
        "HTTP/1.1 200 OK\r\nX: y\r\n  z\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        Ok((200, "ok", true)),
    );
}

#[tokio::test]
async fn headers_need_be_no_text() {
    let answer = b"HTTP/1.1 200 OK\r\nX: \xe9\r\nContent-Length: 2\r\n\r\nok";
    let (answer, body) = receive(answer, 64).await.unwrap();
    assert_eq!((answer.status, body.as_slice()), (200, b"ok".as_slice()));
}

#[test]
fn answers_that_are_none() {
    let not_http = Err("the answer is not HTTP/1.1");
    check("\x15\x03\x01\x00\x02\x02\x16", not_http);
    check("HTTP/2 200\r\n\r\n", not_http);
    check("HTTP/1.1 OK\r\n\r\n", not_http);
    check("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", not_http);
    check("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", not_http);
    check("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", not_http);
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nok",
        not_http,
    );
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: br\r\n\r\n", not_http);
    let chunked =
        |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    check(&chunked("x\r\n"), not_http);
    check(&chunked("-1\r\nx"), not_http);
    check(&chunked("ffffffffffffffff\r\nx"), not_http);
    check(&chunked("1\r\nab\r\n"), not_http);
    check(&chunked("1\n"), not_http);
    check(&chunked(&"1".repeat(300)), not_http);
    check("", Err("the connection was closed before an answer came"));
    let broken = Err("the connection broke in the middle of the answer");
    check("HTTP/1.1 200 OK\r\n", broken);
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", broken);
    check(&chunked("5\r\nhell"), broken);
    check(&chunked("5\r\nhello\r\n"), broken);
}

#[test]
fn answers_that_are_too_large() {
    let too_large = Err("the answer is larger than 1000 bytes");
    let long = "x".repeat(1001);
    check("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", too_large);
    check(&format!("HTTP/1.1 200 OK\r\n\r\n{long}"), too_large);
    let chunk = format!("190\r\n{}\r\n", &long[..400]);
    let chunks = chunk.repeat(3);
    check(
        &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
        too_large,
    );
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(20_000));
    check(&endless, Err("the answer is not HTTP/1.1"));
}

#[test]
fn more_than_was_asked_for_spoils_the_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1";
    let (answer, body) = runtime.block_on(receive(answer, 1 << 16)).unwrap();
    assert_eq!((&*body, answer.reusable), (&b"ok"[..], false));
}

proptest! {
    #[test]
    fn chunks_come_together_however_they_are_cut(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..8),
        piece in 1..40_usize,
    ) {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
            answer.extend(chunk);
            answer.extend(b"\r\n");
        }
        answer.extend(b"0\r\n\r\n");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (answer, body) = runtime.block_on(receive(&answer, piece)).unwrap();
        prop_assert_eq!(body, chunks.concat());
        prop_assert!(answer.reusable);
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(noise in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        answer.extend(&noise);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(receive(&answer, 16));
        let _ = runtime.block_on(receive(&noise, 16));
    }
}
