//! Real HTTP endpoints on loopback, to be killed and revived.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::model::Model;

/// One endpoint and, while it lives, its server.
pub struct Endpoint {
    pub pool: Arc<str>,
    pub name: Arc<str>,
    pub address: SocketAddr,
    server: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Whether its listener is up.
    pub fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// Opens its listener.
    pub async fn revive(&mut self) -> std::io::Result<()> {
        if self.server.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            self.server = Some(tokio::spawn(answer_requests(listener, Arc::clone(&self.name))));
        }
        Ok(())
    }

    /// Closes its listener and every connection.
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await; // the listener is closed once the task is gone
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

/// The endpoints of a model, down; each at the port its monitor probes, and
/// those without a monitor at the first such port.
fn of(model: &Model) -> Vec<Endpoint> {
    let common = model.monitors.iter().find_map(|monitor| monitor.check.port()).unwrap_or(18080);
    let all = model.pools.iter().flat_map(|pool| {
        let monitor = pool.tests.members.first().map(|member| model.monitor(member.monitor));
        let port = monitor.and_then(|monitor| monitor.check.port()).unwrap_or(common);
        pool.endpoints.iter().map(move |endpoint| Endpoint {
            pool: Arc::clone(&pool.name),
            name: Arc::clone(&endpoint.name),
            address: SocketAddr::new(endpoint.address, endpoint.port.unwrap_or(port)),
            server: None,
        })
    });
    all.collect()
}

/// The endpoints of a model, up; or the address that can't be had.
pub async fn raise(model: &Model) -> Result<Vec<Endpoint>, (SocketAddr, std::io::Error)> {
    let mut endpoints = of(model);
    for endpoint in &mut endpoints {
        endpoint.revive().await.map_err(|error| (endpoint.address, error))?;
    }
    Ok(endpoints)
}

/// Answers every request with the endpoint's name.
async fn answer_requests(listener: TcpListener, name: Arc<str>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let body = Bytes::from(format!("{name} is here\n"));
                let service = service_fn(move |_: Request<hyper::body::Incoming>| {
                    let body = body.clone();
                    async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
