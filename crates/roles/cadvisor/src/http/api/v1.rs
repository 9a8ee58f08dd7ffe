//! Versions 1.0 to 1.3.

use std::io::Write;
use std::sync::Arc;

use crate::rest::{
    MachineInfo, Missing, Range, RenderContext, Snapshot, by_alias, by_path, by_prefix,
    json as text, v1,
};
use plimsoll_containers::Namespace;
use plimsoll_golang::strconv::quote;
use plimsoll_observe::store::Container;

use super::{Answer, Call, events, json, kinds, render_context, request, unknown_kind};
use crate::http::response::Failure;
use crate::http::service::ServerState;

pub async fn answer(shared: &Arc<ServerState>, call: Call) -> Answer {
    if !kinds(call.version).contains(&call.kind.as_str()) {
        return Err(unknown_kind(&call));
    }
    match call.kind.as_str() {
        "machine" => machine(shared).await,
        "containers" => container(shared, &call).await,
        "subcontainers" => subcontainers(shared, &call).await,
        "docker" => docker(shared, call).await,
        _ => events::answer(shared, &call).await,
    }
}

pub async fn machine(shared: &Arc<ServerState>) -> Answer {
    json(shared, |shared, out| {
        let info = shared.backend.observer().machine.info();
        Ok(text::write(&MachineInfo::from(&*info), out)?)
    })
    .await
}

async fn container(shared: &Arc<ServerState>, call: &Call) -> Answer {
    let name = call.container();
    let range = request::parse(&call.body).map_err(Failure::internal)?;
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = by_path(&observer.store, &name).map_err(|missing| {
            let name = quote(&name);
            Failure::internal(format!(
                "failed to get container {name} with error: {missing}"
            ))
        })?;
        write_one(shared, &found, &range, &render_context(observer), out)
    })
    .await
}

fn write_one(
    shared: &ServerState,
    container: &Container,
    range: &Range,
    context: &RenderContext,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let children = shared.backend.children(container.path());
    let children: Vec<&str> = children.iter().map(String::as_str).collect();
    let mut snapshot = Snapshot::take(container, range);
    let observer = shared.backend.observer();
    snapshot.oom_events = observer.oom_events(container.path(), &container.lock());
    Ok(v1::write(&snapshot, &children, context, out)?)
}

async fn subcontainers(shared: &Arc<ServerState>, call: &Call) -> Answer {
    let name = call.container();
    let range = request::parse(&call.body).map_err(Failure::internal)?;
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = by_prefix(&observer.store, &name);
        if found.is_empty() {
            let (name, missing) = (quote(&name), Missing::Nothing);
            return Err(Failure::internal(format!(
                "failed to get subcontainers for container {name} with error: {missing}"
            )));
        }
        let context = render_context(observer);
        for (index, container) in found.iter().enumerate() {
            out.write_all(if index == 0 { b"[" } else { b"," })?;
            write_one(shared, container, &range, &context, out)?;
        }
        Ok(out.write_all(b"]")?)
    })
    .await
}

async fn docker(shared: &Arc<ServerState>, call: Call) -> Answer {
    let range = request::parse(&call.body).map_err(Failure::internal)?;
    let name = match call.rest.as_slice() {
        [] => None,
        [name] if name.is_empty() => None,
        [name] => Some(name.clone()),
        more => {
            let more = more.join(" ");
            return Err(Failure::internal(format!(
                "unknown request for Docker container [{more}]"
            )));
        }
    };
    json(shared, move |shared, out| {
        let observer = shared.backend.observer();
        let found = match &name {
            None => observer.store.of_namespace(Namespace::Docker),
            Some(name) => {
                let found = by_alias(&observer.store, Namespace::Docker, name);
                vec![found.map_err(|missing| {
                    let name = quote(name);
                    Failure::internal(format!(
                        "failed to get Docker container {name} with error: {missing}"
                    ))
                })?]
            }
        };
        let context = render_context(observer);
        out.write_all(b"{")?;
        for (index, container) in found.iter().enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            text::write(container.path().as_ref(), &mut *out)?;
            out.write_all(b":")?;
            write_one(shared, container, &range, &context, out)?;
        }
        Ok(out.write_all(b"}")?)
    })
    .await
}
