//! What a notice looks like to its receiver.

use serde_json::{Value, json};

use super::{Notice, Turn};
use crate::events::{Event, Kind, NewHealth};
use crate::model::Form;
use crate::moment::utc_millis;

/// The limits of PagerDuty's Events API.
const SUMMARY: usize = 1024;
const DEDUP_KEY: usize = 255;

/// The limit of a text in a block of Slack.
const BLOCK: usize = 3000;

/// The body of the request that tells it.
pub fn body(notice: &Notice) -> Value {
    match &notice.route.receiver.form {
        Form::Webhook { .. } => webhook(notice),
        Form::Slack => slack(notice),
        Form::PagerDuty { routing_key } => pagerduty(notice, routing_key.reveal()),
    }
}

impl Notice {
    /// What it says, in one line.
    pub fn title(&self) -> String {
        let (total, what) = (self.total, self.kind.plural());
        if total > 1 {
            return match self.turn {
                Turn::Start => format!("{total} {what} are unhealthy"),
                Turn::Repeat(_) => format!("{total} {what} fell together, not all are well"),
                Turn::End => format!("all {total} {what} that fell together are well"),
            };
        }
        match (self.turn, &self.closed) {
            (Turn::Start, _) => self.opened.summary.clone(),
            (Turn::Repeat(_), _) => format!("still: {}", self.opened.summary),
            (Turn::End, Some(closed)) => closed.summary.clone(),
            (Turn::End, None) => {
                let what = self.kind.as_str().replace('_', " ");
                format!("{what} {} is no longer watched", self.opened.object)
            }
        }
    }

    /// What there is to say beside the title.
    pub fn details(&self) -> String {
        let mut lines = Vec::new();
        let event = self.newest();
        if self.total > 1 {
            let more = self.total.saturating_sub(self.named.len());
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("{}{rest}", self.named.join(", ")));
            lines.push(format!("the first: {}", self.opened.summary));
        } else {
            let (from, to) = (event.from.replace('_', " "), event.to.replace('_', " "));
            lines.push(format!("{from} → {to}: {}", event.reason));
            if let (Some(pool), Kind::Endpoint) = (&event.pool, self.kind) {
                let (healthy, enabled) = (pool.origins_healthy, pool.origins_enabled);
                let (name, state) = (&pool.name, &pool.state);
                lines.push(format!(
                    "pool {name} is {state}: {healthy} of {enabled} enabled endpoints healthy"
                ));
            }
        }
        let since = &self.opened.timestamp;
        lines.push(match self.turn {
            Turn::Start => format!("since {since}"),
            Turn::Repeat(_) | Turn::End => {
                format!("since {since}, for {}", duration(self.lasted.as_secs()))
            }
        });
        if self.flapping {
            lines.push("it comes and goes: it counts as well when that has held for 5 minutes".to_owned());
        }
        lines.join("\n")
    }

    /// The event that it tells of.
    fn newest(&self) -> &Event {
        self.closed.as_ref().unwrap_or(&self.opened)
    }

    fn new_health(&self) -> &'static str {
        match (self.turn, &self.closed) {
            (Turn::Start | Turn::Repeat(_), _) => "Unhealthy",
            (Turn::End, Some(event)) if event.new_health == NewHealth::Healthy => "Healthy",
            (Turn::End, _) => "Out",
        }
    }
}

/// A number of seconds for people.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

fn webhook(notice: &Notice) -> Value {
    json!({
        "name": notice.title(),
        "text": format!("{}\n{}", notice.title(), notice.details()),
        "data": data(notice),
        "ts": notice.at.elapsed().as_secs(),
        "policy_id": &*notice.route.name,
        "policy_name": &*notice.route.name,
        "alert_type": "load_balancing_health_alert",
        "alert_correlation_id": notice.incident,
        "alert_event": match notice.turn {
            Turn::Start | Turn::Repeat(_) => "ALERT_STATE_EVENT_START",
            Turn::End => "ALERT_STATE_EVENT_END",
        },
    })
}

/// The facts, under the names that Cloudflare's notifications have for them.
fn data(notice: &Notice) -> Value {
    let event = notice.newest();
    let one = notice.total == 1;
    let origin = event.origins.iter().find(|origin| origin.changed && one);
    let pool = event.pool.as_ref().filter(|_| one).map(|pool| &pool.name);
    json!({
        "event_source": match notice.kind {
            Kind::Endpoint | Kind::Test => "origin",
            Kind::Pool => "pool",
            Kind::LoadBalancer => "load_balancer",
            Kind::Records => "records",
            Kind::Vantage => "vantage",
        },
        "new_health": notice.new_health(),
        "pool_id": pool,
        "pool_name": pool,
        "origin_name": origin.map(|origin| &origin.name),
        "origin_ip": origin.map(|origin| &origin.ip),
        "load_balancer_name": event.load_balancer.as_ref().filter(|_| one).map(|balancer| &balancer.name),
        "old_status": event.from,
        "new_status": event.to,
        "reason": event.reason,
        "status_change_time": event.timestamp,
        "event_id": event.id,
        "evidence": event.evidence,
        "started": notice.opened.timestamp,
        "lasted_seconds": notice.lasted.as_secs(),
        "repeated": match notice.turn {
            Turn::Repeat(number) => number,
            Turn::Start | Turn::End => 0,
        },
        "flapping": notice.flapping,
        "total": notice.total,
        "named": notice.named,
    })
}

fn slack(notice: &Notice) -> Value {
    let sign = match (notice.turn, notice.new_health()) {
        (Turn::Start | Turn::Repeat(_), _) => ":red_circle:",
        (Turn::End, "Healthy") => ":large_green_circle:",
        (Turn::End, _) => ":white_circle:",
    };
    let (title, details) = (mrkdwn(&notice.title()), mrkdwn(&notice.details()));
    let block = |text: String| json!({ "type": "mrkdwn", "text": cut(&text, BLOCK) });
    json!({
        "text": format!("{sign} {title}"),
        "blocks": [
            { "type": "section", "text": block(format!("{sign} *{title}*")) },
            { "type": "context", "elements": [block(details)] },
        ],
    })
}

/// A text in which Slack finds no links and no mentions.
fn mrkdwn(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn pagerduty(notice: &Notice, routing_key: &str) -> Value {
    let pool = notice.opened.pool.as_ref().map(|pool| pool.name.as_str());
    json!({
        "routing_key": routing_key,
        "event_action": match notice.turn {
            Turn::Start | Turn::Repeat(_) => "trigger",
            Turn::End => "resolve",
        },
        "dedup_key": cut(&notice.key, DEDUP_KEY),
        "client": "Hale",
        "payload": {
            "summary": cut(&notice.title(), SUMMARY),
            "source": notice.opened.object,
            "severity": match notice.kind {
                Kind::Pool | Kind::LoadBalancer => "critical",
                Kind::Endpoint | Kind::Records | Kind::Test => "error",
                Kind::Vantage => "warning",
            },
            "timestamp": utc_millis(notice.at.elapsed()),
            "component": notice.opened.object,
            "group": pool.unwrap_or_else(|| notice.kind.as_str()),
            "class": notice.kind.as_str(),
            "custom_details": { "details": notice.details(), "data": data(notice) },
        },
    })
}
