//! Monitors of type grpc.

use hyper::http::uri::Authority;

use crate::config::lower::Lower;
use crate::config::place::Spot;
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar, brief};
use crate::config::shape;
use crate::model::{Check, GrpcCheck};

impl Lower<'_> {
    pub(super) fn grpc_check(&self, shape: &shape::Monitor) -> Check {
        let tls = self.boolean(&shape.tls, false);
        if !tls {
            self.without_tls(shape, "write `tls: true` beside it");
        }
        Check::Grpc(GrpcCheck {
            port: self.port(&shape.port),
            tls: tls.then(|| self.tls(shape)),
            service: self.text(&shape.service).map_or("", |(text, _)| text).into(),
            authority: self.authority(&shape.authority),
        })
    }

    fn authority(&self, field: &Field<Scalar>) -> Option<String> {
        let (text, place) = self.text(field).filter(|(text, _)| !text.is_empty())?;
        if text.parse::<Authority>().is_err() || text.contains('@') {
            let kind = ProblemKind::NotServerName { value: brief(text) };
            let help = "write a name such as `api.example.com`, and a port only if the service expects it";
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
        }
        Some(text.into())
    }
}
