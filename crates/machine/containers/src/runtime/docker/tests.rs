//! Recorded answers of the engine, shortened, and a server in this process that gives bad ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
const INFO: &str = r#"{"ID":"x","Name":"node","Driver":"overlay2","DriverStatus":[["Backing Filesystem","extfs"],["odd"]],
    "DockerRootDir":"/var/lib/docker","KernelVersion":"6.1","OperatingSystem":"Debian","Images":3,"Containers":2}"#;
const INSPECT: &str = r#"{"Id":"ID","Name":"/web","Created":"2026-01-02T03:04:05.000000006Z","RestartCount":2,
    "State":{"Running":true,"Pid":42,"ExitCode":0,"StartedAt":"2026-01-02T03:04:06Z","Health":{"Status":"healthy"}},
    "Config":{"Image":"nginx:1","Env":["APP_KEY=v","PATH=/bin"],"Labels":{"a":"b"}},
    "HostConfig":{"NetworkMode":"bridge"},
    "GraphDriver":{"Name":"overlay2","Data":{"UpperDir":"/var/lib/docker/overlay2/rw/diff"}}}"#;

/// What the fake says to a path, byte for byte; an empty answer is silence with the line held open.
type Script = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn start(script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let script: Script = Arc::new(script);
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    let text = String::from_utf8_lossy(&request[..read]).into_owned();
                    let path = text.split(' ').nth(1).unwrap_or("").to_owned();
                    let answer = script(&path);
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        Self { dir }
    }

    async fn connect(&self) -> Result<Docker, RuntimeError> {
        let options = Options {
            env_whitelist: vec!["APP".to_owned()],
        };
        Docker::connect(&self.dir.path().join("s"), Namespace::Docker, &options).await
    }
}

fn ok(body: &str) -> Vec<u8> {
    let body = body.replace("ID", ID);
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn not_found() -> Vec<u8> {
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}".to_vec()
}

/// A server that is well until it is asked about a container.
async fn inspect(answer: Vec<u8>) -> Result<InspectResult, RuntimeError> {
    let fake = Fake::start(move |path| match path {
        "/info" => ok(INFO),
        _ => answer.clone(),
    });
    fake.connect().await.unwrap().inspect(ID).await
}

#[tokio::test]
async fn a_running_container() {
    let InspectResult::CgroupTree(found) = inspect(ok(INSPECT)).await.unwrap() else {
        panic!("not known")
    };
    let expected = Identity {
        namespace: Namespace::Docker,
        id: ID.to_owned(),
        aliases: vec!["web".to_owned(), ID.to_owned()],
        image: "nginx:1".to_owned(),
        labels: BTreeMap::from([
            ("a".to_owned(), "b".to_owned()),
            ("restartcount".to_owned(), "2".to_owned()),
        ]),
        envs: BTreeMap::from([("app_key".to_owned(), "v".to_owned())]),
        created: Some(Timestamp(1_767_323_045_000_000_006)),
        started: Some(Timestamp(1_767_323_046_000_000_000)),
        pid: Some(42),
        owns_network: true,
        health: Health("healthy".to_owned()),
        writable_layer: Some("/var/lib/docker/overlay2/rw/diff".into()),
        log_dir: Some(format!("/var/lib/docker/containers/{ID}").into()),
    };
    assert_eq!(*found, expected);
}

#[tokio::test]
async fn one_that_is_not_running_yet_with_nulls_everywhere() {
    let answer = r#"{"Id":"ID","Name":"/x","State":{"Running":false,"StartedAt":"0001-01-01T00:00:00Z","Health":null},
        "Config":{"Labels":null,"Env":null},"HostConfig":{"NetworkMode":"container:abc"},"GraphDriver":null}"#;
    let InspectResult::Starting(found) = inspect(ok(answer)).await.unwrap() else {
        panic!("not starting")
    };
    assert_eq!(found.started, None);
    assert_eq!(found.pid, None);
    assert!(!found.owns_network);
    assert_eq!(found.writable_layer, None);
}

#[tokio::test]
async fn bad_answers_are_errors_of_their_kind() {
    assert_eq!(inspect(not_found()).await.unwrap(), InspectResult::Unknown);
    let malformed = |outcome| matches!(outcome, Err(RuntimeError::Malformed(_)));
    assert!(malformed(inspect(ok("{\"Id\":7}")).await));
    assert!(malformed(inspect(ok("")).await));
    assert!(malformed(
        inspect(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()).await
    ));
    let status = b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nbusy".to_vec();
    assert!(matches!(
        inspect(status).await,
        Err(RuntimeError::Refused { .. })
    ));
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    assert!(matches!(inspect(cut).await, Err(RuntimeError::Broken(_))));
}

#[tokio::test]
async fn a_huge_answer_is_not_swallowed() {
    let outcome = inspect(ok(&" ".repeat(ONE_LIMIT + 1))).await;
    assert!(matches!(outcome, Err(RuntimeError::TooLarge(_))));
}

#[tokio::test]
async fn silence_is_left_to_the_callers_deadline() {
    let waiting = inspect(Vec::new());
    let outcome = tokio::time::timeout(Duration::from_millis(50), waiting).await;
    assert!(outcome.is_err());
}

#[tokio::test]
async fn an_absent_socket() {
    let options = Options {
        env_whitelist: Vec::new(),
    };
    let dir = tempfile::tempdir().unwrap();
    let outcome = Docker::connect(&dir.path().join("none"), Namespace::Docker, &options).await;
    assert!(matches!(outcome, Err(RuntimeError::Connect { .. })));
}

#[tokio::test]
async fn events_are_followed_until_the_stream_ends() {
    let stream = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
         {{\"Type\":\"container\",\"Action\":\"start\",\"Actor\":{{\"ID\":\"{ID}\",\"Attributes\":{{}}}}}}\n\
         {{\"Action\":\"exec_start: sh\",\"Actor\":{{\"ID\":\"{ID}\",\"Attributes\":null}}}}\n\n\
         {{\"status\":\"die\",\"Action\":\"die\",\"Actor\":{{\"ID\":\"{ID}\",\"Attributes\":{{\"exitCode\":\"9\"}}}}}}\n\
         {{\"Action\":\"health_status: healthy\",\"Actor\":{{\"ID\":\"{ID}\"}}}}\n"
    );
    let fake = Fake::start(move |path| match path {
        "/info" => ok(INFO),
        _ => stream.clone().into_bytes(),
    });
    let mut seen = Vec::new();
    let docker = fake.connect().await.unwrap();
    docker.follow(|event| seen.push(event)).await.unwrap();
    let changed = || Event::Changed(ID.to_owned());
    assert_eq!(
        seen,
        [changed(), Event::Exited(ID.to_owned(), 9), changed()]
    );
}

#[tokio::test]
async fn status_images_and_list() {
    let fake = Fake::start(|path| match path {
        "/info" => ok(INFO),
        "/version" => ok(r#"{"Version":"29.0.1","ApiVersion":"1.52"}"#),
        "/images/json" => ok(
            r#"[{"Id":"sha256:a","RepoTags":["x:1"],"Created":5,"Size":7},
            {"Id":"sha256:b","RepoTags":["<none>:<none>"]},{"Id":"sha256:c","RepoTags":null}]"#,
        ),
        "/containers/json" => ok(r#"[{"Id":"ID"}]"#),
        _ => not_found(),
    });
    let docker = fake.connect().await.unwrap();
    let status = docker.status().await.unwrap();
    assert_eq!(status.version, "29.0.1");
    assert_eq!(status.driver_status["Backing Filesystem"], "extfs");
    assert_eq!(status.driver_status.len(), 1);
    let images = docker.images().await.unwrap();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0].size, 7);
    let listing = docker.list().await.unwrap();
    assert_eq!(listing, ListResult::Ids([ID.to_owned()].into()));
    let unsupported = docker.follow(|_| ()).await;
    assert!(matches!(unsupported, Err(RuntimeError::Unsupported)));
}
