//! Monitors of type tcp.

use crate::config::lower::Lower;
use crate::config::place::Spot;
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar};
use crate::config::shape;
use crate::model::{Check, TcpCheck};

impl Lower<'_> {
    pub(super) fn tcp_check(&self, shape: &shape::Monitor) -> Check {
        let expect = self.octets(&shape.expect);
        if let Some(("", place)) = self.text(&shape.expect) {
            self.empty_text(place, "a text of 1 to 10240 octets");
        }
        if let (Some(octets), Some(place)) = (&expect, shape.expect.place())
            && octets.len() > TcpCheck::EXPECTED_WITHIN
        {
            let value = format!("a text of {} octets", octets.len());
            let range = format!("1 to {} octets, as many as are looked through", TcpCheck::EXPECTED_WITHIN);
            let kind = ProblemKind::OutOfRange { value, range };
            self.gather.refuse(Spot::Value(place), kind, Some("shorten it".into()));
        }
        Check::Tcp(TcpCheck { port: self.port(&shape.port), send: self.octets(&shape.send), expect })
    }

    /// A text as it goes over the wire; an empty one is as good as none.
    pub(super) fn octets(&self, field: &Field<Scalar>) -> Option<Box<[u8]>> {
        self.text(field).filter(|(text, _)| !text.is_empty()).map(|(text, _)| text.as_bytes().into())
    }
}
