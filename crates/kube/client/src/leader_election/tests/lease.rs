//! Candidates against a Lease behind a client, on a clock that jumps.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::fake;
use crate::fake::Asked;
use crate::shutdown;

struct Cluster {
    server: Arc<Mutex<Server>>,
    events: Arc<Mutex<Vec<Value>>>,
    silent: Arc<AtomicBool>,
    client: kube::Client,
}

impl Cluster {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let silent = Arc::new(AtomicBool::new(false));
        let (leases, told, hush) = (
            Arc::clone(&server),
            Arc::clone(&events),
            Arc::clone(&silent),
        );
        let (client, _) = fake::client_async(move |asked| {
            let answer = match asked.path.contains("/leases") {
                true => lease_answer(&mut leases.lock(), &asked),
                false => {
                    told.lock().push(asked.body.clone());
                    (201, asked.body)
                }
            };
            let hush = Arc::clone(&hush);
            async move {
                if hush.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                answer
            }
        });
        Self {
            server,
            events,
            silent,
            client,
        }
    }

    fn candidate(&self, identity: &str) -> LeaderElector {
        config(identity).build(self.client.clone(), None).unwrap()
    }
}

fn lease_answer(server: &mut Server, asked: &Asked) -> (u16, Value) {
    let sent = || Box::new(serde_json::from_value(asked.body.clone()).unwrap());
    let action = match asked.method.as_str() {
        "GET" => Action::Get,
        "POST" => Action::Create(sent()),
        "PUT" => Action::Put(sent()),
        other => panic!("{other}"),
    };
    match server.answer(&action) {
        Answer::Lease(lease) => (200, serde_json::to_value(&*lease).unwrap()),
        Answer::NotFound => fake::failure(404, "NotFound"),
        Answer::Conflict => fake::failure(409, "Conflict"),
        Answer::Failed => fake::failure(500, "InternalError"),
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), poll)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn three_candidates_hand_over() {
    let cluster = Cluster::new();
    let working = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    for index in 0..3 {
        let candidate = cluster.candidate(&format!("c{index}"));
        let leadership = candidate.leadership();
        let (stopper, shutdown) = shutdown::channel();
        let working = Arc::clone(&working);
        let task = tokio::spawn(candidate.run(shutdown, move |over| async move {
            assert_eq!(working.fetch_add(1, Ordering::SeqCst), 0, "alone at work");
            over.begins().await;
            // Cleaning up takes a while, and is done before anybody else begins.
            tokio::time::sleep(Duration::from_secs(3)).await;
            working.fetch_sub(1, Ordering::SeqCst);
        }));
        running.push((leadership, stopper, task));
    }
    for _ in 0..3 {
        until(|| {
            running
                .iter()
                .any(|(leadership, ..)| leadership.is_leader())
        })
        .await;
        let leader = running.iter().position(|(l, ..)| l.is_leader()).unwrap();
        let identity = holder(cluster.server.lock().lease.as_ref().unwrap()).to_owned();
        until(|| running.iter().all(|(l, ..)| l.leader() == identity)).await;
        let (leadership, stopper, task) = running.swap_remove(leader);
        leadership.check(Duration::ZERO).unwrap();
        stopper.stop();
        assert_eq!(task.await.unwrap(), ElectionResult::Stopped);
        assert!(!leadership.is_leader());
    }
    assert_eq!(holder(cluster.server.lock().lease.as_ref().unwrap()), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_server_stops_in_time() {
    let cluster = Cluster::new();
    let candidate = cluster.candidate("a");
    let leadership = candidate.leadership();
    let stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopped);
    let (_stopper, shutdown) = shutdown::channel();
    let task = tokio::spawn(candidate.run(shutdown, move |over| async move {
        over.begins().await;
        told.store(true, Ordering::Relaxed);
    }));
    until(|| leadership.is_leader()).await;
    cluster.silent.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    until(|| stopped.load(Ordering::Relaxed)).await;
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(13),
        "{took:?}"
    );
    assert!(!leadership.is_leader());
    assert_eq!(task.await.unwrap(), ElectionResult::Lost);
}

#[tokio::test(start_paused = true)]
async fn whoever_never_leads_leaves_at_once() {
    let cluster = Cluster::new();
    let first = cluster.candidate("a");
    let leads = first.leadership();
    let (_keep, forever) = shutdown::channel();
    tokio::spawn(first.run(forever, |over| async move { over.begins().await }));
    until(|| leads.is_leader()).await;
    let second = cluster.candidate("b");
    let seen = second.leadership();
    let (stopper, shutdown) = shutdown::channel();
    let task = tokio::spawn(second.run(shutdown, |_| async { panic!("never") }));
    until(|| seen.leader() == "a").await;
    stopper.stop();
    let began = tokio::time::Instant::now();
    assert_eq!(task.await.unwrap(), ElectionResult::NeverLed);
    assert!(began.elapsed() <= Duration::from_secs(1));
    assert!(leads.is_leader());
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_in_a_panic_makes_room_for_others() {
    let cluster = Cluster::new();
    let (_stopper, shutdown) = shutdown::channel();
    let candidate = cluster.candidate("a");
    let ended = candidate.run(shutdown, |_| async { panic!("a defect") });
    assert_eq!(ended.await, ElectionResult::Crashed);
    assert_eq!(holder(cluster.server.lock().lease.as_ref().unwrap()), "");
}

#[tokio::test(start_paused = true)]
async fn the_lease_tells_who_led() {
    use crate::events::Config as Events;
    use crate::events::EventApi;
    let cluster = Cluster::new();
    let (recorder, recording) =
        Events::new(EventApi::Core, "plimsoll-scheduler").spawn(cluster.client.clone());
    let candidate = config("a")
        .build(cluster.client.clone(), Some(recorder))
        .unwrap();
    let leadership = candidate.leadership();
    let (stopper, shutdown) = shutdown::channel();
    let task = tokio::spawn(candidate.run(shutdown, |over| async move { over.begins().await }));
    until(|| leadership.is_leader()).await;
    stopper.stop();
    assert_eq!(task.await.unwrap(), ElectionResult::Stopped);
    assert!(recording.drain(Duration::from_secs(5)).await);
    let events = cluster.events.lock();
    let texts: Vec<&str> = events
        .iter()
        .map(|e| e["message"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["a became leader", "a stopped leading"]);
    let event = &events[0];
    assert_eq!(event["reason"], "LeaderElection");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["metadata"]["namespace"], "kube-system");
    assert_eq!(
        event["involvedObject"],
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "name": "plimsoll-scheduler", "namespace": "kube-system"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_is_unhealthy() {
    let cluster = Cluster::new();
    let candidate = cluster.candidate("a");
    let leadership = candidate.leadership();
    let (_stopper, shutdown) = shutdown::channel();
    let mut running = Box::pin(candidate.run(shutdown, |over| async move { over.begins().await }));
    let leads = until(|| leadership.is_leader());
    tokio::select! {
        _ = &mut running => panic!("it leads"),
        () = leads => {}
    }
    let tolerance = Duration::from_secs(20);
    leadership.check(tolerance).unwrap();
    // Nobody drives it any more.
    tokio::time::advance(Duration::from_secs(34)).await;
    leadership.check(tolerance).unwrap();
    assert!(!leadership.is_leader());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(
        leadership.check(tolerance).unwrap_err(),
        "failed election to renew leadership on lease plimsoll-scheduler"
    );
}

/// Led by nobody: what is asked after a pause is asked of the clock alone.
#[tokio::test(start_paused = true)]
async fn who_was_paused_writes_nothing_more() {
    let cluster = Cluster::new();
    let candidate = cluster.candidate("a");
    let leadership = candidate.leadership();
    let (writes, log) = fake::client_async(|asked: Asked| async move {
        if asked.path.ends_with("/slow") {
            std::future::pending::<()>().await;
        }
        (200, json!({}))
    });
    let guarded = leadership.guard(writes);
    let send = |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.body(kube::client::Body::empty()).unwrap();
        let client = guarded.clone();
        async move { client.send(request).await.map(|answer| answer.status()) }
    };
    let refused = send("POST", "/early").await.unwrap_err();
    assert!(NotLeading::is_cause_of(&refused), "{refused}");
    let (_stopper, shutdown) = shutdown::channel();
    let mut running = Box::pin(candidate.run(shutdown, |over| async move { over.begins().await }));
    tokio::select! {
        _ = &mut running => panic!("it leads"),
        () = until(|| leadership.is_leader()) => {}
    }
    assert_eq!(send("PATCH", "/in-time").await.unwrap(), 200);
    let under_way = tokio::spawn(send("POST", "/slow"));
    until(|| log.lock().len() == 2).await;
    // Nobody drives the election any more, as if the process had been stopped.
    tokio::time::advance(Duration::from_secs(13)).await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let refused = send(method, "/late").await.unwrap_err();
        assert!(NotLeading::is_cause_of(&refused), "{refused}");
    }
    let cut_off = under_way.await.unwrap().unwrap_err();
    assert!(NotLeading::is_cause_of(&cut_off), "{cut_off}");
    assert_eq!(send("GET", "/read").await.unwrap(), 200);
    let sent: Vec<String> = log.lock().iter().map(|asked| asked.path.clone()).collect();
    assert_eq!(sent, ["/in-time", "/slow", "/read"]);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_stand_says_why() {
    let (client, _) = fake::client(|asked: &Asked| match asked.method.as_str() {
        "GET" => fake::failure(404, "NotFound"),
        _ => (
            404,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "namespaces \"kube-system\" not found", "reason": "NotFound", "code": 404,
                "details": {"name": "kube-system", "kind": "namespaces"}}),
        ),
    });
    let candidate = config("a").build(client, None).unwrap();
    let leadership = candidate.leadership();
    leadership.stands().unwrap();
    let (stopper, shutdown) = shutdown::channel();
    let task = tokio::spawn(candidate.run(shutdown, |_| async { panic!("never") }));
    until(|| leadership.stands().is_err()).await;
    let why = leadership.stands().unwrap_err();
    assert!(
        why.starts_with("waiting for the lease kube-system/plimsoll-scheduler for ")
            && why.ends_with(
                "namespaces \"kube-system\" not found; create the namespace, or name another one"
            ),
        "{why}"
    );
    stopper.stop();
    assert_eq!(task.await.unwrap(), ElectionResult::NeverLed);
}

#[tokio::test(start_paused = true)]
async fn who_loses_knows_whether_somebody_else_leads() {
    let cluster = Cluster::new();
    let candidate = cluster.candidate("a");
    let leadership = candidate.leadership();
    let (_stopper, shutdown) = shutdown::channel();
    let task = tokio::spawn(candidate.run(shutdown, |over| async move { over.begins().await }));
    until(|| leadership.is_leader()).await;
    cluster.silent.store(true, Ordering::Relaxed);
    assert_eq!(task.await.unwrap(), ElectionResult::Lost);
    let why = leadership.why_lost();
    assert!(
        why.starts_with(
            "the lease kube-system/plimsoll-scheduler could not be renewed within 10 s: "
        ),
        "{why}"
    );
}
