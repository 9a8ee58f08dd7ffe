//! kill -9 in the middle of many writes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::create::SERVER_ALONE;
use crate::subject::Subject;
use crate::wire::Target;
use crate::{Options, Report};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: u32 = 20;
/// Writes a second of all together.
const RATE: u32 = 1_000;
const FOR: Duration = Duration::from_secs(5);

/// By name, the number that was last acknowledged.
type Acknowledged = HashMap<String, u64>;

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    let target = subject.target()?;
    let started = Instant::now();
    let writers: Vec<JoinHandle<Acknowledged>> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(target.clone(), writer)))
        .collect();
    tokio::time::sleep(FOR).await;
    let took = started.elapsed();
    subject.kill()?;
    let mut acknowledged = Acknowledged::new();
    let mut writes = 0;
    for writer in writers {
        let found = writer.await?;
        writes += found.values().map(|number| number + 1).sum::<u64>();
        acknowledged.extend(found);
    }
    report.note("kill -9: writes acknowledged", writes as f64, "");
    report.at_least(
        "kill -9: writes acknowledged a second",
        writes as f64 / took.as_secs_f64(),
        "/s",
        f64::from(RATE) * 0.95,
    );

    let subject = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    let mut connection = subject.target()?.connect().await?;
    let list: Value = serde_json::from_slice(&connection.get(MAPS).await?)?;
    let empty = Vec::new();
    let there: HashMap<&str, u64> = list["items"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter_map(|map| {
            let number = map["data"]["number"].as_str()?.parse().ok()?;
            Some((map["metadata"]["name"].as_str()?, number))
        })
        .collect();
    let lost = acknowledged
        .iter()
        .filter(|(name, number)| there.get(name.as_str()).is_none_or(|found| found < number));
    report.at_most(
        "kill -9: lost of those after the restart",
        lost.count() as f64,
        "",
        0.0,
    );
    ensure!(!acknowledged.is_empty(), "nothing was written");
    subject.stop()
}

/// Makes a map and changes it nine times, then the next one, until the server is gone.
async fn write(target: Target, writer: u32) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let Ok(mut connection) = target.connect().await else {
        return acknowledged;
    };
    let mut beat = interval(Duration::from_secs(1) * WRITERS / RATE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for index in 0_u64.. {
        beat.tick().await;
        let name = format!("kill-{writer}-{}", index / 10);
        let number = index % 10;
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"number": number.to_string()},
        });
        let written = match number {
            0 => connection.create(MAPS, body.to_string()).await,
            _ => {
                connection
                    .merge(&format!("{MAPS}/{name}"), body.to_string())
                    .await
            }
        };
        if written.is_err() {
            break;
        }
        acknowledged.insert(name, number);
    }
    acknowledged
}
