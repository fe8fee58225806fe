# The delegated subdomain.
zone: gslb.example.com
ttl: 1h                      # of ordinary records
soa: { mname: ns1, rname: hostmaster.example.com., minimum: 30s }

records:
  '':
    - { type: NS, values: [ns1, ns2] }
    - { type: TXT, value: answered by hale }
  ns1: { type: A, value: 192.0.2.53 }
  ns2: { type: A, value: 198.51.100.53 }
  web: { type: CNAME, value: www }

load_balancers:
  www:                       # eu while it is available, else us, else sorry
    ttl: 30s
    steering_policy: off
    default_pools: [eu, us]
    fallback_pool: sorry
  api:                       # 70 % eu, 30 % us
    ttl: 30s
    steering_policy: random
    random_steering: { pool_weights: { eu: 0.7, us: 0.3 } }
    default_pools: [eu, us]
    fallback_pool: sorry
