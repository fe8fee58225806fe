//! All owner names and their ordinary RRsets, laid out for look-up.
//!
//! One arena of octets holds names and ready-made records; nodes, RRsets and
//! zones are small numbers that point into it. A name is found through an
//! open-addressed table by the hash of its labels, taken from the root
//! downwards, so that the hashes of all its ancestors come for free: a miss
//! finds the closest encloser (RFC 4592 §3.3.1) without hashing again.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::{Model, Name, RecordSet};
use crate::rdata::{is_open_hint, rtype, service_params};

/// Stands for "no such node", "no load balancer" and "follows nothing".
const NONE: u32 = u32::MAX;

/// Octets of a record before its RDATA when the owner is a pointer.
pub const RECORD_HEAD: usize = 12;

/// One owner name, or an empty non-terminal.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    name: u32,
    name_length: u8,
    sets_count: u8,
    /// What doesn't exist below is renamed (RFC 6672).
    dname: bool,
    sets: u32,
    zone: u32,
    balancer: u32,
    /// The child `*`.
    wildcard: u32,
    /// The zone cut at or above the name.
    cut: u32,
}

/// One RRset: a run of records in the arena, each with a pointer to the
/// question (offset 12) as its owner.
#[derive(Clone, Copy, Debug)]
struct Set {
    records: u32,
    length: u32,
    count: u16,
    rtype: u16,
    /// Hints of addresses are left open in it.
    open: bool,
    /// Its number among those whose members follow health.
    follower: u32,
}

/// What answering needs to know of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneInfo {
    apex_length: u8,
    /// The apex, and the node for it in the zone above, where that one is
    /// served too.
    apex: u32,
    above: u32,
    soa_ttl: u32,
    minimum: u32,
    /// The SOA's RDATA, its serial left at 0.
    soa: u32,
    soa_length: u16,
    /// Where the serial stands in it.
    serial_at: u16,
}

impl ZoneInfo {
    /// Octets of the apex name on the wire.
    pub fn apex_length(&self) -> usize {
        usize::from(self.apex_length)
    }

    /// The number of the apex among all names.
    pub fn number(&self) -> u32 {
        self.apex
    }

    /// The TTL of the SOA where it is asked for.
    pub fn soa_ttl(&self) -> u32 {
        self.soa_ttl
    }

    /// How long a negative answer may be kept (RFC 2308 §3 and §5).
    pub fn negative_ttl(&self) -> u32 {
        self.soa_ttl.min(self.minimum)
    }
}

/// An RRset as it stands in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Rrset<'a> {
    pub rtype: u16,
    pub count: u16,
    /// Some SVCB or HTTPS record leaves hints of addresses open, which follow
    /// the load balancer of its name.
    pub open: bool,
    /// Its number among those whose members follow health: then these records
    /// are all that it may have, and [`super::Snapshot::now`] has those that are in.
    pub follower: Option<u32>,
    /// The records one after the other, owner a pointer to offset 12.
    pub records: &'a [u8],
}

impl<'a> Rrset<'a> {
    /// The TTL of the first record, which is that of all (RFC 2181 §5.2).
    pub fn ttl(self) -> u32 {
        self.records
            .get(6..10)
            .and_then(|octets| octets.first_chunk())
            .map_or(0, |ttl| u32::from_be_bytes(*ttl))
    }

    /// The RDATA of each record.
    pub fn rdata(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let length = usize::from(u16::from_be_bytes([*rest.get(10)?, *rest.get(11)?]));
            let (record, after) = rest.split_at(RECORD_HEAD + length);
            rest = after;
            Some(&record[RECORD_HEAD..])
        })
    }
}

/// All names of all zones.
#[derive(Debug, Default)]
pub struct Names {
    arena: Box<[u8]>,
    slots: Box<[Slot]>,
    nodes: Box<[Node]>,
    sets: Box<[Set]>,
    zones: Box<[ZoneInfo]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    node: u32,
}

/// A name that is looked up: lower-case wire form, hashed label by label.
#[derive(Debug)]
pub struct Key {
    wire: [u8; 255],
    length: u8,
    labels: u8,
    /// Where each label begins, from the left.
    starts: [u8; 128],
    /// The hash of the name that begins with each label; the root's at the end.
    hashes: [u64; 128],
}

impl Default for Key {
    fn default() -> Key {
        Key { wire: [0; 255], length: 0, labels: 0, starts: [0; 128], hashes: [0; 128] }
    }
}

impl Key {
    /// Takes in an uncompressed name at the beginning of `octets`; returns its
    /// length, or none if there is no well-formed name (RFC 1035 §3.1).
    pub fn read(&mut self, octets: &[u8]) -> Option<usize> {
        let mut at = 0;
        let mut labels = 0;
        loop {
            let length = usize::from(*octets.get(at)?);
            if length == 0 {
                break;
            }
            if length > 63 || at + length > 253 {
                return None;
            }
            self.starts[labels] = at as u8;
            labels += 1;
            at += 1 + length;
        }
        let length = at + 1;
        self.wire[..length].copy_from_slice(octets.get(..length)?);
        self.wire[..length].make_ascii_lowercase(); // length octets are below 'A'
        self.length = length as u8;
        self.labels = labels as u8;
        self.starts[labels] = at as u8;
        let mut hash = 0;
        self.hashes[labels] = hash;
        let mut end = at;
        for label in (0..labels).rev() {
            let start = usize::from(self.starts[label]);
            hash = mix(hash, &self.wire[start..end]);
            self.hashes[label] = hash;
            end = start;
        }
        Some(length)
    }

    /// The name, lower-case.
    pub fn wire(&self) -> &[u8] {
        &self.wire[..usize::from(self.length)]
    }

    /// The name that begins with the n-th label from the left.
    fn suffix(&self, label: usize) -> &[u8] {
        &self.wire()[usize::from(self.starts[label])..]
    }
}

/// Folds a label, its length octet included, into the hash of its parent.
fn mix(parent: u64, label: &[u8]) -> u64 {
    const A: u64 = 0xa076_1d64_78bd_642f;
    const B: u64 = 0xe703_7ed1_a0b4_28db;
    let fold = |hash: u64, word: u64| {
        let wide = u128::from(hash ^ word ^ A) * u128::from(B ^ word);
        (wide >> 64) as u64 ^ wide as u64
    };
    let (words, rest) = label.as_chunks::<8>();
    let mut hash = parent ^ label.len() as u64;
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    let mut last = 0;
    for &octet in rest {
        last = last << 8 | u64::from(octet);
    }
    fold(hash, last)
}

/// Where a name leads.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// To this node, be it the name's own or the wildcard that covers it.
    Node(&'a Node),
    /// Nowhere: the name doesn't exist in the zone of this node, its closest
    /// encloser.
    Nothing(&'a Node),
    /// Below this zone cut.
    Cut(&'a Node),
    /// Below this node, which has a DNAME.
    Renamed(&'a Node),
    /// Out of all our zones.
    Outside,
}

impl Names {
    /// Where `key` leads.
    pub fn find(&self, key: &Key) -> Found<'_> {
        let mut encloser = None;
        for label in 0..=usize::from(key.labels) {
            if let Some(node) = self.node(key.hashes[label], key.suffix(label)) {
                if label == 0 {
                    return match self.cut_of(node) {
                        Some(cut) => Found::Cut(cut),
                        None => Found::Node(node),
                    };
                }
                encloser = Some(node);
                break;
            }
        }
        let Some(encloser) = encloser else { return Found::Outside };
        if let Some(cut) = self.cut_of(encloser) {
            return Found::Cut(cut);
        }
        if encloser.dname {
            return Found::Renamed(encloser);
        }
        match self.nodes.get(encloser.wildcard as usize) {
            Some(wildcard) => Found::Node(wildcard),
            None => Found::Nothing(encloser),
        }
    }

    /// The node of exactly this name, cuts and wildcards left aside.
    pub fn exact(&self, key: &Key) -> Option<&Node> {
        self.node(key.hashes[0], key.wire())
    }

    /// The node's number among all names.
    pub fn number(&self, node: &Node) -> u32 {
        node.name // where its name stands: no other node's stands there
    }

    /// The name that has this number, by a look at each: nothing for a query.
    pub fn numbered(&self, number: u32) -> Option<Name> {
        let node = self.nodes.iter().find(|node| node.name == number)?;
        Name::from_wire(self.name(node))
    }

    /// Of a zone's apex, the node that its parent zone has for it, where that
    /// one is served too: there its DS records stand (RFC 4035 §3.1.4.1).
    pub fn parent_side(&self, node: &Node) -> Option<&Node> {
        let (zone, _) = self.zone(node);
        let is_apex = usize::from(node.name_length) == zone.apex_length();
        self.nodes.get(zone.above as usize).filter(|_| is_apex)
    }

    /// The zone a node belongs to, and its number.
    pub fn zone(&self, node: &Node) -> (&ZoneInfo, usize) {
        (&self.zones[node.zone as usize], node.zone as usize)
    }

    /// The name of a node, lower-case.
    pub fn name(&self, node: &Node) -> &[u8] {
        &self.arena[node.name as usize..][..usize::from(node.name_length)]
    }

    /// The number of the load balancer at a node.
    pub fn balancer(&self, node: &Node) -> Option<usize> {
        (node.balancer != NONE).then_some(node.balancer as usize)
    }

    /// The RRset of this type at a node.
    pub fn set(&self, node: &Node, rtype: u16) -> Option<Rrset<'_>> {
        self.sets_of(node).iter().find(|set| set.rtype == rtype).map(|set| self.rrset(set))
    }

    /// Some RRset of a node.
    pub fn any_set(&self, node: &Node) -> Option<Rrset<'_>> {
        self.sets_of(node).first().map(|set| self.rrset(set))
    }

    /// The RDATA of a zone's SOA before and after its serial.
    pub fn soa(&self, zone: &ZoneInfo) -> (&[u8], &[u8]) {
        let rdata = &self.arena[zone.soa as usize..][..usize::from(zone.soa_length)];
        let (names, numbers) = rdata.split_at(usize::from(zone.serial_at));
        (names, &numbers[4..])
    }

    fn sets_of(&self, node: &Node) -> &[Set] {
        &self.sets[node.sets as usize..][..usize::from(node.sets_count)]
    }

    fn rrset(&self, set: &Set) -> Rrset<'_> {
        let records = &self.arena[set.records as usize..][..set.length as usize];
        let follower = (set.follower != NONE).then_some(set.follower);
        Rrset { rtype: set.rtype, count: set.count, open: set.open, follower, records }
    }

    fn cut_of(&self, node: &Node) -> Option<&Node> {
        self.nodes.get(node.cut as usize)
    }

    fn node(&self, hash: u64, name: &[u8]) -> Option<&Node> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut place = hash as usize & mask;
        let tag = (hash >> 32) as u32;
        loop {
            let slot = self.slots.get(place)?;
            if slot.node == NONE {
                return None;
            }
            if slot.tag == tag {
                let node = &self.nodes[slot.node as usize];
                if self.name(node) == name {
                    return Some(node);
                }
            }
            place = (place + 1) & mask;
        }
    }
}

/// What stands at one name while the table is built.
#[derive(Default)]
struct Site<'a> {
    /// Each with its number among those whose members follow health.
    sets: Vec<(&'a RecordSet, u32)>,
    balancer: Option<u32>,
}

impl Names {
    /// Lays out all names of the model. Load balancers get the numbers they
    /// have when all zones' are counted through in order, and so do RRsets whose
    /// members follow health; a disabled load balancer is left out, and its
    /// ordinary records show.
    pub fn compile(model: &Model) -> Names {
        let mut names = Layout::default();
        let mut first_balancer = 0;
        let mut followers = 0..;
        let apexes: HashSet<&[u8]> = model.zones.iter().map(|zone| zone.apex.wire()).collect();
        let nested = nested_apexes(model);
        for (zone, number) in model.zones.iter().zip(0..) {
            // what a zone of our own below holds is its business: of all apexes
            // at or above a name, this zone's must be the nearest
            let ours = |name: &Name| {
                let nearest = name.suffixes().find(|suffix| apexes.contains(suffix));
                nearest == Some(zone.apex.wire())
            };
            let mut sites: BTreeMap<Name, Site> = BTreeMap::new();
            sites.entry(zone.apex.clone()).or_default();
            for set in &zone.records {
                let follower = if set.follows() { followers.next() } else { None };
                if ours(&set.owner) {
                    let site = sites.entry(set.owner.clone()).or_default();
                    site.sets.push((set, follower.unwrap_or(NONE)));
                }
            }
            for (balancer, place) in zone.load_balancers.iter().zip(first_balancer..) {
                if balancer.enabled && ours(&balancer.name) {
                    let site = sites.entry(balancer.name.clone()).or_default();
                    site.balancer = Some(place);
                    site.sets.retain(|(set, _)| ![rtype::A, rtype::AAAA, rtype::CNAME].contains(&set.rtype));
                }
            }
            first_balancer += zone.load_balancers.len() as u32;
            let mut owners: Vec<Name> = sites.keys().cloned().collect();
            // a nested zone's apex is not ours, but what lies between is
            owners.extend(nested.get(&zone.apex).into_iter().flatten().cloned());
            for owner in owners {
                let mut above = owner.parent();
                while let Some(name) = above.filter(|name| name.is_within(&zone.apex)) {
                    above = name.parent();
                    if sites.contains_key(&name) {
                        break;
                    }
                    sites.insert(name, Site::default()); // an empty non-terminal
                }
            }
            names.add_zone(zone, number, sites);
            for apex in nested.get(&zone.apex).into_iter().flatten() {
                names.add_parent_side(zone, number, apex);
            }
        }
        names.finish(model)
    }
}

/// The apexes that lie below each zone's own, with no other served apex between.
pub fn nested_apexes(model: &Model) -> HashMap<Name, Vec<Name>> {
    let apexes: HashMap<&[u8], &Name> =
        model.zones.iter().map(|zone| (zone.apex.wire(), &zone.apex)).collect();
    let mut nested: HashMap<Name, Vec<Name>> = HashMap::new();
    for zone in &model.zones {
        let above = zone.apex.suffixes().skip(1).find_map(|suffix| apexes.get(suffix));
        if let Some(above) = above {
            nested.entry(Name::clone(above)).or_default().push(zone.apex.clone());
        }
    }
    nested
}

/// Adds one record of `set` as answers have it, its owner a pointer to the
/// question.
pub fn add_record(records: &mut Vec<u8>, set: &RecordSet, rdata: &[u8]) {
    records.extend_from_slice(&[0xc0, 12]);
    records.extend_from_slice(&set.rtype.to_be_bytes());
    records.extend_from_slice(&[0, 1]);
    records.extend_from_slice(&set.ttl.to_be_bytes());
    records.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
    records.extend_from_slice(rdata);
}

/// The growing table.
#[derive(Default)]
struct Layout {
    arena: Vec<u8>,
    nodes: Vec<Node>,
    sets: Vec<Set>,
    zones: Vec<ZoneInfo>,
    /// What zones hold of the apexes right below them.
    parent_sides: HashMap<Name, Node>,
}

impl Layout {
    fn add_zone(&mut self, zone: &crate::model::Zone, number: u32, sites: BTreeMap<Name, Site>) {
        let mut numbers: HashMap<Name, u32> = HashMap::with_capacity(sites.len());
        for (name, mut site) in sites {
            let sets = self.sets.len() as u32;
            site.sets.sort_by_key(|(set, _)| set.rtype);
            for (set, follower) in &site.sets {
                self.add_set(set, *follower);
            }
            numbers.insert(name.clone(), self.nodes.len() as u32);
            let node = Node {
                name: self.arena.len() as u32,
                name_length: name.wire().len() as u8,
                sets,
                sets_count: u8::try_from(site.sets.len()).expect("fewer than 256 types at a name"),
                dname: site.sets.iter().any(|(set, _)| set.rtype == rtype::DNAME),
                zone: number,
                balancer: site.balancer.unwrap_or(NONE),
                wildcard: NONE,
                cut: NONE,
            };
            self.arena.extend_from_slice(name.wire());
            self.nodes.push(node);
        }
        for (name, &place) in &numbers {
            if name.is_wildcard()
                && let Some(parent) = name.parent().and_then(|parent| numbers.get(&parent))
            {
                self.nodes[*parent as usize].wildcard = place;
            }
            // the topmost name below the apex that is delegated
            let mut above = Some(name.clone());
            while let Some(name) = above.filter(|name| *name != zone.apex) {
                if let Some(&cut) = numbers.get(&name)
                    && self.has_set(cut, rtype::NS)
                {
                    self.nodes[place as usize].cut = cut;
                }
                above = name.parent();
            }
        }
        let soa = self.arena.len() as u32;
        self.arena.extend_from_slice(&zone.soa.mname);
        self.arena.extend_from_slice(&zone.soa.rname);
        let serial_at = (self.arena.len() - soa as usize) as u16;
        for number in [0, zone.soa.refresh, zone.soa.retry, zone.soa.expire, zone.soa.minimum] {
            self.arena.extend_from_slice(&number.to_be_bytes());
        }
        self.zones.push(ZoneInfo {
            apex_length: zone.apex.wire().len() as u8,
            apex: self.nodes[numbers[&zone.apex] as usize].name,
            above: NONE,
            soa_ttl: zone.soa.ttl,
            minimum: zone.soa.minimum,
            soa,
            soa_length: serial_at + 20,
            serial_at,
        });
    }

    /// The parent zone's node for an apex: its DS records, under its own SOA.
    fn add_parent_side(&mut self, parent: &crate::model::Zone, number: u32, apex: &Name) {
        let (sets, name) = (self.sets.len(), self.arena.len());
        for set in &parent.records {
            if set.rtype == rtype::DS && set.owner == *apex {
                self.add_set(set, NONE);
            }
        }
        self.arena.extend_from_slice(apex.wire());
        let node = Node {
            name: name as u32,
            name_length: apex.wire().len() as u8,
            sets_count: (self.sets.len() - sets) as u8,
            dname: false,
            sets: sets as u32,
            zone: number,
            balancer: NONE,
            wildcard: NONE,
            cut: NONE,
        };
        self.parent_sides.insert(apex.clone(), node);
    }

    fn add_set(&mut self, set: &RecordSet, follower: u32) {
        let start = self.arena.len();
        for rdata in &set.rdata {
            add_record(&mut self.arena, set, rdata);
        }
        self.sets.push(Set {
            records: start as u32,
            length: (self.arena.len() - start) as u32,
            count: u16::try_from(set.rdata.len()).expect("an RRset fits a message of 64 KiB"),
            rtype: set.rtype,
            open: matches!(set.rtype, rtype::SVCB | rtype::HTTPS)
                && set
                    .rdata
                    .iter()
                    .any(|rdata| service_params(rdata).any(|(key, value)| is_open_hint(key, value))),
            follower,
        });
    }

    fn has_set(&self, node: u32, rtype: u16) -> bool {
        let node = &self.nodes[node as usize];
        self.sets[node.sets as usize..][..usize::from(node.sets_count)].iter().any(|set| set.rtype == rtype)
    }

    fn finish(mut self, model: &Model) -> Names {
        assert!(u32::try_from(self.arena.len()).is_ok(), "names and records stay under 4 GiB");
        let size = (self.nodes.len() * 2).next_power_of_two();
        let mut slots = vec![Slot { tag: 0, node: NONE }; size].into_boxed_slice();
        let mut key = Key::default();
        for (node, number) in self.nodes.iter().zip(0..) {
            let name = &self.arena[node.name as usize..][..usize::from(node.name_length)];
            key.read(name).expect("names of the model are well formed");
            let mut place = key.hashes[0] as usize & (size - 1);
            while slots[place].node != NONE {
                place = (place + 1) & (size - 1);
            }
            slots[place] = Slot { tag: (key.hashes[0] >> 32) as u32, node: number };
        }
        // only now: a name leads to the zone below, and from there to these
        for (zone, info) in model.zones.iter().zip(&mut self.zones) {
            if let Some(node) = self.parent_sides.remove(&zone.apex) {
                info.above = self.nodes.len() as u32;
                self.nodes.push(node);
            }
        }
        Names {
            arena: self.arena.into(),
            slots,
            nodes: self.nodes.into(),
            sets: self.sets.into(),
            zones: self.zones.into(),
        }
    }
}
