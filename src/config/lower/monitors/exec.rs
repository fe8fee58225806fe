//! Monitors of type exec.

use std::path::Path;

use crate::config::lower::{Lower, beside};
use crate::config::place::{Place, Spot};
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar};
use crate::config::shape;
use crate::model::{Check, ExecCheck};

const HELP: &str = "write the program and its arguments, such as `command: [/usr/local/bin/check, --quick]`";

impl Lower<'_> {
    pub(super) fn exec_check(&self, shape: &shape::Monitor) -> Check {
        let kind = shape.r#type.place().expect("a monitor is of another type unless it says so");
        // With a file unread, the permission may stand in that one.
        if !self.allow_exec && self.whole {
            let help = "write `server: { allow_exec: true }` if whoever writes the configuration may run \
                        programs as this server's user";
            self.gather.refuse(Spot::Value(kind), ProblemKind::ExecNotAllowed {}, Some(help.into()));
        }
        let command = match &shape.command {
            Field::Given(place, list) => self.command(*place, list),
            Field::Absent => {
                self.missing(kind, "a monitor of type exec", "command", HELP);
                Vec::new()
            }
            Field::Broken(_) => Vec::new(),
        };
        Check::Exec(ExecCheck { command })
    }

    fn command(&self, place: Place, list: &[Field<Scalar>]) -> Vec<String> {
        if list.is_empty() {
            self.empty_list(place, HELP);
        }
        let mut command = Vec::new();
        for (item, number) in list.iter().zip(0..) {
            let Some((text, place)) = self.text(item) else { continue };
            if text.contains('\0') {
                let kind = ProblemKind::WrongShape {
                    found: "a text with the character U+0000".into(),
                    expected: "an argument".into(),
                };
                self.gather.refuse(Spot::Value(place), kind, Some("take the character away".into()));
            } else if number == 0 && text.is_empty() {
                self.empty_text(place, "a program");
            } else if number == 0 && text.contains('/') && !Path::new(text).is_absolute() {
                // As with other files, relative to the one that names it.
                command.push(beside(self.gather, place, text).to_string_lossy().into_owned());
            } else {
                command.push(text.to_owned());
            }
        }
        command
    }
}
